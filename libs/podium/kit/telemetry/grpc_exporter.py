"""OTLP over gRPC, as most installations have it; imported where spans are exported alone."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from podium.kit.telemetry.otlp_encoding import encode


class GrpcSpanExporter(OTLPSpanExporter):
    """The SDK's, with a cheaper encoder."""

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        return encode(data)
