"""Spans as OTLP's messages: what the SDK's own encoder makes of them, at a fifth of its cost.

A rollout's spans share most of their attributes (the provider, the policy, the conversation), and
the SDK makes messages of each, every time; and for each span it hashes the whole resource as
JSON. Here an attribute that was told before is bytes already. What is rare is left to the SDK.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as pb
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, StatusCode

_KINDS: Final = {kind: pb.Span.SpanKind.Value(f"SPAN_KIND_{kind.name}") for kind in SpanKind}
_CODES: Final = {
    code: pb.Status.StatusCode.Value(f"STATUS_CODE_{code.name}") for code in StatusCode
}
_KNOWN: Final = 4096
"""Attributes that are kept as bytes."""
_LONGEST: Final = 256
"""Characters of a text that is kept: what is longer is what was said, and comes once."""
_LOCAL: Final = pb.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE: Final = _LOCAL | pb.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class _RareError(Exception):
    """An attribute of a kind that is the SDK's to encode, or to leave out."""


def encode(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """The request that exports these spans, as `encode_spans` of the SDK makes it."""
    # By identity, which is cheap: a process has one resource.
    by_resource: dict[int, dict[InstrumentationScope | None, list[ReadableSpan]]] = {}
    for span in spans:
        by_scope = by_resource.setdefault(id(span.resource), {})
        by_scope.setdefault(span.instrumentation_scope, []).append(span)
    request = ExportTraceServiceRequest()
    for by_scope in by_resource.values():
        # What is around the spans is the SDK's work, of one span a scope.
        around = encode_spans([own[0] for own in by_scope.values()])
        for scope, own in zip(around.resource_spans[0].scope_spans, by_scope.values(), strict=True):
            del scope.spans[:]
            scope.spans.extend(map(_encoded, own))
        request.resource_spans.extend(around.resource_spans)
    return request


def _encoded(span: ReadableSpan) -> pb.Span:
    context = span.get_span_context()
    if context is None or context.trace_state or span.events or span.links:
        return _by_the_sdk(span)
    try:
        attributes = [_attribute(key, value) for key, value in (span.attributes or {}).items()]
    except (_RareError, TypeError, ValueError):
        return _by_the_sdk(span)
    parent = span.parent
    status = span.status
    made = pb.Span(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        parent_span_id=parent.span_id.to_bytes(8, "big") if parent else b"",
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        dropped_attributes_count=span.dropped_attributes,
        dropped_events_count=span.dropped_events,
        dropped_links_count=span.dropped_links,
        status=pb.Status(code=_CODES[status.status_code], message=status.description or ""),
        flags=_REMOTE if parent and parent.is_remote else _LOCAL,
    )
    made.MergeFromString(b"".join(attributes))
    return made


def _by_the_sdk(span: ReadableSpan) -> pb.Span:
    return encode_spans([span]).resource_spans[0].scope_spans[0].spans[0]


def _attribute(key: str, value: object) -> bytes:
    kind = type(value)
    if kind is str or kind is tuple:
        if len(value) > _LONGEST:  # type: ignore[arg-type]
            return _bytes(key, value)
    elif kind is float:
        # 0.0 is equal to -0.0, of which nothing here is to make one.
        return _bytes(key, value)
    elif kind is not int and kind is not bool:
        raise _RareError
    return _known(key, value)


@lru_cache(_KNOWN, typed=True)
def _known(key: str, value: object) -> bytes:
    return _bytes(key, value)


def _bytes(key: str, value: object) -> bytes:
    """A span's field with one attribute.

    Raises:
        ValueError: a number is too large, or a text holds half of a character.
    """
    match value:
        case bool():
            said = AnyValue(bool_value=value)
        case int():
            said = AnyValue(int_value=value)
        case float():
            said = AnyValue(double_value=value)
        case str():
            said = AnyValue(string_value=value)
        case tuple() if all(type(each) is str for each in value):
            texts = [AnyValue(string_value=each) for each in value]
            said = AnyValue(array_value=ArrayValue(values=texts))
        case _:
            raise _RareError
    return pb.Span(attributes=[KeyValue(key=key, value=said)]).SerializeToString()
