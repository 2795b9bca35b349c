"""The methods of the API that are offered over HTTP, and how each is called.

All of the controller's that take one request, and what is read of the registry. Whoever uploads,
leases, collects garbage or drives training needs streams of requests, and speaks gRPC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from podium.jobs.v1 import evaluation_service_pb2, job_service_pb2
from podium.registry.v1 import registry_service_pb2

CONTROLLER, REGISTRY = "controller", "registry"
_READS = frozenset({"GetVersion", "ListVersions", "ListModels", "GetLineage", "WatchVersions"})


@dataclass(frozen=True)
class Method:
    """One method of one service."""

    path: str
    """`podium.jobs.v1.JobService/CreateJob`."""
    peer: str
    """Who serves it."""
    request: type[Message]
    response: type[Message]
    streams: bool
    """Whether it answers with several messages."""

    def call(self, channel: grpc.aio.Channel, request: Message, seconds: float | None) -> Any:
        """Begins a call, which may take so long; None for what the channel gives it."""
        make = channel.unary_stream if self.streams else channel.unary_unary
        begin = make(
            f"/{self.path}",
            request_serializer=self.request.SerializeToString,
            response_deserializer=self.response.FromString,
        )
        return begin(request, timeout=seconds)


def _methods(service: ServiceDescriptor, peer: str) -> Iterator[Method]:
    for each in service.methods:
        if not each.client_streaming and (peer != REGISTRY or each.name in _READS):
            yield _method(service, each, peer)


def _method(service: ServiceDescriptor, each: MethodDescriptor, peer: str) -> Method:
    return Method(
        f"{service.full_name}/{each.name}",
        peer,
        GetMessageClass(each.input_type),
        GetMessageClass(each.output_type),
        each.server_streaming,
    )


_SERVICES = (
    (job_service_pb2.DESCRIPTOR.services_by_name["JobService"], CONTROLLER),
    (evaluation_service_pb2.DESCRIPTOR.services_by_name["EvaluationService"], CONTROLLER),
    (registry_service_pb2.DESCRIPTOR.services_by_name["RegistryService"], REGISTRY),
)

METHODS: Mapping[str, Method] = MappingProxyType(
    {method.path: method for service, peer in _SERVICES for method in _methods(service, peer)}
)
"""By their paths."""
