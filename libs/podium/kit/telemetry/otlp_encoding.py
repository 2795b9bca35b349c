"""Spans as OTLP's request, byte for byte what the SDK's own encoder makes of them.

That one makes some sixty objects of a span with a dozen attributes, and for each span it hashes
the whole resource as JSON. Here a span is written as bytes at once, in protocol buffers' format,
and what was told before is bytes already. What is rare is left to the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2 as pb
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode

from podium.kit.telemetry.light_spans import MOST_ATTRIBUTES, LightSpan

Kept = ReadableSpan | LightSpan
Hashed = TypeVar("Hashed")

_KINDS: Final = {kind: pb.Span.SpanKind.Value(f"SPAN_KIND_{kind.name}") for kind in SpanKind}
_CODES: Final = {
    code: pb.Status.StatusCode.Value(f"STATUS_CODE_{code.name}") for code in StatusCode
}
_KNOWN: Final = 4096
"""Attributes, of each kind, that are kept as bytes."""
_LONGEST: Final = 256
"""Characters of a text that is kept: what is longer is what was said, and comes once."""
_SMALL: Final = 4096
"""Numbers below it come again, such as turns and versions."""
_LOCAL: Final = pb.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE: Final = _LOCAL | pb.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK

# What stands before a field: its number and the wire type. Those of a Span, by number:
_IDS: Final = Struct(">2s16s2s8s")
_TRACE_ID, _SPAN_ID, _PARENT_ID = b"\x0a\x10", b"\x12\x08", b"\x22\x08"
_TIMES: Final = Struct("<cQcQ")
_START, _END = b"\x39", b"\x41"
_ATTRIBUTES, _LINKS, _STATUS, _FLAGS = b"\x4a", b"\x6a", b"\x7a", b"\x85\x01"
# a Link, a Status,
_LINK_FLAGS, _MESSAGE, _CODE = b"\x35", b"\x12", b"\x18"
# a KeyValue, an AnyValue, an ArrayValue,
_KEY, _VALUE = b"\x0a", b"\x12"
_TEXT, _TRUTH, _NUMBER, _FRACTION, _ARRAY = b"\x0a", b"\x10", b"\x18", b"\x21", b"\x2a"
_EACH: Final = b"\x0a"
# a request, a ResourceSpans and a ScopeSpans.
_RESOURCE_SPANS, _SCOPE_SPANS, _SPANS = b"\x0a", b"\x12", b"\x12"

_DOUBLE: Final = Struct("<d")
_FIXED: Final = Struct("<I")
_BYTE: Final = tuple(bytes((each,)) for each in range(128))


class _RareError(Exception):
    """Something that is the SDK's to encode, or to leave out."""


def encode(spans: Sequence[Kept]) -> bytes:
    """The request that exports these spans, as `encode_spans` of the SDK makes it."""
    # By identity, which is cheap: a process has one resource, and a module one scope.
    places: dict[tuple[int, int], list[bytes]] = {}
    by_resource: dict[int, tuple[Resource, dict[InstrumentationScope | None, list[bytes]]]] = {}
    for span in spans:
        resource: Resource
        scope: InstrumentationScope | None
        if isinstance(span, LightSpan):
            resource, scope = span.maker.resource, span.maker.scope
        else:
            resource, scope = span.resource, span.instrumentation_scope
        place = places.get((id(resource), id(scope)))
        if place is None:
            _, scopes = by_resource.setdefault(id(resource), (resource, {}))
            place = places[id(resource), id(scope)] = scopes.setdefault(scope, [])
        place.append(_encoded(span))
    return b"".join(
        _field(_RESOURCE_SPANS, _of_resource(resource, scopes))
        for resource, scopes in by_resource.values()
    )


class _Same(Generic[Hashed]):
    """Stands for something that is hashed dearly; equal to itself alone."""

    def __init__(self, it: Hashed) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.it is self.it


def _of_resource(
    resource: Resource, scopes: dict[InstrumentationScope | None, list[bytes]]
) -> bytes:
    """A ResourceSpans."""
    begin, end = _around_resource(_Same(resource))
    parts = [begin]
    for scope, spans in scopes.items():
        scope_begin, scope_end = _around_scope(_Same(scope))
        parts.append(_field(_SCOPE_SPANS, b"".join((scope_begin, *spans, scope_end))))
    return b"".join((*parts, end))


@lru_cache(64)
def _around_resource(same: _Same[Resource]) -> tuple[bytes, bytes]:
    """What is before the spans of a resource, and behind them: the SDK's words for them."""
    span = ReadableSpan("", SpanContext(1, 1, False), resource=same.it)
    said = encode_spans([span]).resource_spans[0]
    begin = pb.ResourceSpans(resource=said.resource).SerializeToString()
    return begin, pb.ResourceSpans(schema_url=said.schema_url).SerializeToString()


@lru_cache(64)
def _around_scope(same: _Same[InstrumentationScope | None]) -> tuple[bytes, bytes]:
    """As `_around_resource`, of a scope."""
    span = ReadableSpan("", SpanContext(1, 1, False), instrumentation_scope=same.it)
    said = encode_spans([span]).resource_spans[0].scope_spans[0]
    begin = pb.ScopeSpans(scope=said.scope).SerializeToString()
    return begin, pb.ScopeSpans(schema_url=said.schema_url).SerializeToString()


def _encoded(span: Kept) -> bytes:
    """A ScopeSpans' field with one span."""
    try:
        made = _light(span) if isinstance(span, LightSpan) else _of_the_sdk(span)
    except (_RareError, LookupError, AttributeError, TypeError, ValueError):
        whole = span.readable() if isinstance(span, LightSpan) else span
        spans = encode_spans([whole]).resource_spans[0].scope_spans[0].spans
        made = spans[0].SerializeToString()
    return _field(_SPANS, made)


def _light(span: LightSpan) -> bytes:
    attributes = span.attributes
    if span.events or len(attributes) > MOST_ATTRIBUTES:
        raise _RareError
    times = (span.start_time, span.end_time)
    status = (span.status_code, span.description)
    return _span(
        span.context, span.parent, span.name, span.kind, times, attributes.items(), (), status
    )


def _of_the_sdk(span: ReadableSpan) -> bytes:
    if span.events or span.dropped_attributes or span.dropped_events or span.dropped_links:
        raise _RareError
    times = (span.start_time, span.end_time)
    status = (span.status.status_code, span.status.description)
    attributes = (span.attributes or {}).items()
    return _span(
        span.context, span.parent, span.name, span.kind, times, attributes, span.links, status
    )


def _span(
    context: SpanContext | None,
    parent: SpanContext | None,
    name: str,
    kind: SpanKind,
    times: tuple[int | None, int | None],
    attributes: Iterable[tuple[str, object]],
    links: Sequence[Link],
    status: tuple[StatusCode, str | None],
) -> bytes:
    start, end = times
    if context is None or context.trace_state or not (start and end):
        raise _RareError
    parts = [_ids(context)]
    if parent:
        parts.append(_PARENT_ID + parent.span_id.to_bytes(8, "big"))
    parts += [_named(name, kind), _TIMES.pack(_START, start, _END, end)]
    for key, value in attributes:
        # Most are of these two, and a call costs as much as the rest of it.
        if type(value) is str and len(value) <= _LONGEST:
            parts.append(_known_text(key, value))
        elif type(value) is int and 0 <= value < _SMALL:
            parts.append(_few(key, value))
        else:
            parts.append(_WRITERS[type(value)](key, value))
    parts += map(_link, links)
    parts.append(_status(*status, _REMOTE if parent and parent.is_remote else _LOCAL))
    return b"".join(parts)


def _ids(context: SpanContext) -> bytes:
    trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
    return _IDS.pack(_TRACE_ID, trace_id, _SPAN_ID, span_id)


def _link(link: Link) -> bytes:
    context = link.context
    if link.attributes or link.dropped_attributes or context.trace_state:
        raise _RareError
    flags = _REMOTE if context.is_remote else _LOCAL
    return _field(_LINKS, _ids(context) + _LINK_FLAGS + _FIXED.pack(flags))


@lru_cache(_KNOWN)
def _named(name: str, kind: SpanKind) -> bytes:
    """A span's name and kind; names are few."""
    return pb.Span(name=name, kind=_KINDS[kind]).SerializeToString()


@lru_cache(_KNOWN)
def _status(code: StatusCode, message: str | None, flags: int) -> bytes:
    """What ends a span: how it ended, and where its parent was."""
    status = pb.Status(code=_CODES[code], message=message or "")
    return pb.Span(status=status, flags=flags).SerializeToString()


def _text(key: str, value: str) -> bytes:
    return _attribute(key, _field(_TEXT, value.encode()))


_known_text = lru_cache(_KNOWN)(_text)


@lru_cache(_KNOWN)
def _truth(key: str, value: bool) -> bytes:
    return _attribute(key, _TRUTH + _BYTE[value])


def _number(key: str, value: int) -> bytes:
    if not -(1 << 63) <= value < 1 << 63:
        raise _RareError
    return _attribute(key, _NUMBER + _varint(value & (1 << 64) - 1))


_few = lru_cache(_KNOWN)(_number)


def _fraction(key: str, value: float) -> bytes:
    return _attribute(key, _FRACTION + _DOUBLE.pack(value))


def _texts(key: str, values: tuple[object, ...]) -> bytes:
    if len(values) != 1 or type(values[0]) is not str or len(values[0]) > _LONGEST:
        raise _RareError
    return _one_text(key, values[0])


@lru_cache(_KNOWN)
def _one_text(key: str, value: str) -> bytes:
    """A list of one text, such as the reasons why a choice ended."""
    return _attribute(key, _field(_ARRAY, _field(_EACH, _field(_TEXT, value.encode()))))


_WRITERS: Final[dict[type, Callable[[str, Any], bytes]]] = {
    str: _text,
    bool: _truth,
    int: _number,
    float: _fraction,
    tuple: _texts,
}


def _attribute(key: str, value: bytes) -> bytes:
    """A span's field with one attribute, whose AnyValue is written already."""
    return _field(_ATTRIBUTES, _key(key) + _field(_VALUE, value))


@lru_cache(_KNOWN)
def _key(key: str) -> bytes:
    if not key:
        raise _RareError
    return KeyValue(key=key).SerializeToString()


def _field(tag: bytes, value: bytes) -> bytes:
    """What is told by its length."""
    size = len(value)
    return tag + (_BYTE[size] if size < 128 else _varint(size)) + value


def _varint(value: int) -> bytes:
    if value < 128:
        return _BYTE[value]
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)
