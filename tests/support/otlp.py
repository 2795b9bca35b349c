"""OTLP endpoints, of gRPC and of HTTP, that keep every span and header they are sent."""

from __future__ import annotations

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from podium.kit.http_server import end_http_server


class _Spans:
    """What has arrived so far."""

    endpoint = ""
    """For OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, trace_pb2.Span]] = []
        self._headers: list[dict[str, str]] = []
        self._resources: list[dict[str, str]] = []

    def keep(
        self, request: trace_service_pb2.ExportTraceServiceRequest, headers: Mapping[str, str]
    ) -> None:
        with self._lock:
            self._headers.append({name.lower(): value for name, value in headers.items()})
            for resource in request.resource_spans:
                told = {a.key: a.value.string_value for a in resource.resource.attributes}
                self._resources.append(told)
                name = told.get("service.name", "")
                for scope in resource.scope_spans:
                    self._spans += [(name, span) for span in scope.spans]

    def headers(self) -> list[dict[str, str]]:
        """Of each export, names in lower case."""
        with self._lock:
            return list(self._headers)

    def resources(self) -> list[dict[str, str]]:
        """What each export said of its sender."""
        with self._lock:
            return list(self._resources)

    def by_trace(self) -> dict[str, list[tuple[str, trace_pb2.Span]]]:
        """Trace id (hex) to its (service name, span) pairs so far."""
        with self._lock:
            traces: dict[str, list[tuple[str, trace_pb2.Span]]] = defaultdict(list)
            for service, span in self._spans:
                traces[span.trace_id.hex()].append((service, span))
        return traces


class OtlpReceiver(_Spans, trace_service_pb2_grpc.TraceServiceServicer):
    """Listens on a free loopback port from construction until `stop`."""

    protocol = "grpc"

    def __init__(self) -> None:
        super().__init__()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.keep(request, dict(_pairs(context.invocation_metadata())))
        return trace_service_pb2.ExportTraceServiceResponse()

    def stop(self) -> None:
        self._server.stop(1).wait()


class OtlpHttpReceiver(_Spans):
    """As `OtlpReceiver`, of OTLP/HTTP with protobuf bodies; other requests are refused."""

    protocol = "http/protobuf"

    def __init__(self, path: str = "/v1/traces", *, hangs: bool = False) -> None:
        """`path` is where spans are taken; all others are not found.

        One that `hangs` takes connections and requests, and says nothing until it stops.
        """
        super().__init__()
        receiver = self
        self.asked = 0
        self._stopped = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.asked += 1
                if hangs:
                    receiver._stopped.wait()
                    return None
                if self.path != path:
                    return self.send_error(404)
                if self.headers["Content-Type"] != "application/x-protobuf":
                    return self.send_error(415)
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
                receiver.keep(request, dict(self.headers.items()))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return None

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        end_http_server(self._server)
        self._thread.join()


def _pairs(metadata: Iterable[tuple[str, str | bytes]]) -> Iterable[tuple[str, str]]:
    return ((key, value) for key, value in metadata if isinstance(value, str))
