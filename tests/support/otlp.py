"""An OTLP/gRPC endpoint that keeps every span it is sent."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent import futures

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2


class OtlpReceiver(trace_service_pb2_grpc.TraceServiceServicer):
    """Listens on a free loopback port from construction until `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, trace_pb2.Span]] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        with self._lock:
            for resource in request.resource_spans:
                names = [
                    a.value.string_value
                    for a in resource.resource.attributes
                    if a.key == "service.name"
                ]
                for scope in resource.scope_spans:
                    self._spans += [(names[0] if names else "", span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def by_trace(self) -> dict[str, list[tuple[str, trace_pb2.Span]]]:
        """Trace id (hex) to its (service name, span) pairs so far."""
        with self._lock:
            traces: dict[str, list[tuple[str, trace_pb2.Span]]] = defaultdict(list)
            for service, span in self._spans:
                traces[span.trace_id.hex()].append((service, span))
        return traces

    def stop(self) -> None:
        self._server.stop(1).wait()
