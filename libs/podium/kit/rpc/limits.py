"""How large a request of a method may be, from its contract."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from podium.options.v1 import rules_pb2

DEFAULT_REQUEST_BYTES = 4 * 1024 * 1024
"""One request message of a method whose contract names no other limit."""


def request_bytes(path: str) -> int:
    """Most bytes that one request message of `/podium.x.v1.XService/Method` may have."""
    try:
        method = descriptor_pool.Default().FindMethodByName(path.lstrip("/").replace("/", "."))
    except KeyError:
        return DEFAULT_REQUEST_BYTES
    return _limit(method)


def greatest_request_bytes(services: Iterable[str]) -> int:
    """The greatest limit among the methods of services, given by their full names."""
    greatest = DEFAULT_REQUEST_BYTES
    for name in services:
        try:
            service = descriptor_pool.Default().FindServiceByName(name)
        except KeyError:
            continue
        greatest = max([greatest, *map(_limit, service.methods)])
    return greatest


def _limit(method: MethodDescriptor) -> int:
    options = method.GetOptions()
    if options.HasExtension(rules_pb2.max_request_bytes):
        return options.Extensions[rules_pb2.max_request_bytes]
    return DEFAULT_REQUEST_BYTES
