"""OTLP over gRPC, as most installations have it; imported where spans are exported alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from podium.kit.telemetry.otlp_encoding import Kept, encode

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class GrpcSpanExporter(OTLPSpanExporter):
    """The SDK's, with a cheaper encoder, whose bytes are sent as they are."""

    _channel: Any
    _client: Any

    def _initialize_channel_and_stub(self) -> None:
        super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]
        self._client = _Bytes(self._channel)

    def _translate_data(self, data: Sequence[Kept]) -> Any:
        return encode(data)


class _Bytes:
    """A stub of the collector's service that is given requests in bytes."""

    def __init__(self, channel: Any) -> None:
        self.Export = channel.unary_unary(  # gRPC's name
            _EXPORT, response_deserializer=ExportTraceServiceResponse.FromString
        )
