"""Channel arguments: retries, load balancing, keepalive and limits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions

DEFAULT_MESSAGE_BYTES = 64 * 1024 * 1024

DIRECT = ("grpc.enable_http_proxy", 0)
"""Has a channel take no notice of the environment's proxies."""

_RETRY_POLICY = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
# A peer that is down for good gets few retries, however many calls fail.
_THROTTLING = {"maxTokens": 10, "tokenRatio": 0.1}


def contract_methods() -> Iterator[MethodDescriptor]:
    """Every method of every `podium.*` contract that this process has imported."""
    # A copy: another thread may be importing. Sorted last: there may be thousands of others.
    modules = sys.modules.copy()
    contracts = [each for each in modules if each.startswith("podium.") and each.endswith("_pb2")]
    for name in sorted(contracts):
        file: FileDescriptor = modules[name].DESCRIPTOR
        for service in file.services_by_name.values():
            yield from service.methods


def repeatable(method: MethodDescriptor) -> bool:
    """Whether the contract says that a repeated call does no more than one."""
    level = method.GetOptions().idempotency_level
    return level in (MethodOptions.NO_SIDE_EFFECTS, MethodOptions.IDEMPOTENT)


def service_config() -> dict[str, Any]:
    """The gRPC service config: deadlines are not in it, as grpc#40633 breaks them."""
    names = [
        {"service": method.containing_service.full_name, "method": method.name}
        for method in contract_methods()
        if repeatable(method)
    ]
    config: dict[str, Any] = {
        "loadBalancingConfig": [{"round_robin": {}}],
        "retryThrottling": _THROTTLING,
    }
    if names:
        config["methodConfig"] = [{"name": names, "retryPolicy": _RETRY_POLICY}]
    return config


def channel_options(max_message_bytes: int, *, direct: bool) -> list[tuple[str, Any]]:
    """Channel arguments of every Podium client; `direct` is to pass by proxies."""
    return [
        *([DIRECT] if direct else []),
        ("grpc.service_config", json.dumps(service_config())),
        ("grpc.enable_retries", 1),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # A restarted peer is found again in seconds; gRPC's own bounds reach two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 2_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.dns_min_time_between_resolutions_ms", 2_000),
        # Back-off states are shared between channels of one target otherwise.
        ("grpc.use_local_subchannel_pool", 1),
    ]
