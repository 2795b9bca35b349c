"""Exceptions as google.rpc details in the trailing metadata, and back (AIP-193).

Trailing metadata shares one HTTP/2 header budget, of which gRPC peers may
refuse all beyond 8 KiB, so long texts and long lists of violations are cut
here and say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from podium.core.errors import InvalidArgumentError, PodiumError, Violation
from podium.kit.rpc.status import code_of, exception_of

DOMAIN = "podium.dev"
KEY = "grpc-status-details-bin"

_MESSAGE_BYTES = 768
_METADATA_BYTES = 1024
_VIOLATIONS_BYTES = 2048
_VIOLATION_BYTES = 512


def encode(error: PodiumError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """The arguments of `context.abort`: code, message, trailing metadata."""
    code = code_of(error)
    message = cut(error.message, _MESSAGE_BYTES)
    number: int = code.value[0]
    status = status_pb2.Status(code=number, message=message)
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(
            reason=error.reason, domain=DOMAIN, metadata=_metadata(error.metadata)
        )
    )
    if isinstance(error, InvalidArgumentError) and error.violations:
        status.details.add().Pack(_bad_request(error.violations))
    return code, message, ((KEY, status.SerializeToString()),)


def decode(error: grpc.aio.AioRpcError) -> PodiumError | None:
    """The exception that a Podium server raised; None when it sent no details of ours."""
    for key, value in error.trailing_metadata() or ():
        if key != KEY or not isinstance(value, bytes):
            continue
        try:
            return _decode(status_pb2.Status.FromString(value))
        except (DecodeError, KeyError, ValueError):
            return None
    return None


def cut(text: str, limit: int) -> str:
    """The text, or as much of it as fits into `limit` UTF-8 bytes with an ellipsis."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"


def _metadata(metadata: dict[str, str]) -> dict[str, str]:
    room = _METADATA_BYTES
    kept: dict[str, str] = {}
    for key, value in metadata.items():
        kept[key] = cut(str(value), 256)
        room -= len(key) + len(kept[key].encode())
        if room < 0:
            del kept[key]
            break
    return kept


def _bad_request(violations: Sequence[Violation]) -> error_details_pb2.BadRequest:
    bad = error_details_pb2.BadRequest()
    room = _VIOLATIONS_BYTES
    for index, violation in enumerate(violations):
        entry = error_details_pb2.BadRequest.FieldViolation(
            field=cut(violation.field, 256),
            description=cut(violation.description, _VIOLATION_BYTES),
        )
        room -= entry.ByteSize() + 4
        if room < 0:
            bad.field_violations.add(description=f"and {len(violations) - index} more")
            break
        bad.field_violations.append(entry)
    return bad


def _decode(status: status_pb2.Status) -> PodiumError | None:
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(bad.DESCRIPTOR):
            detail.Unpack(bad)
    if info.domain != DOMAIN:
        return None
    kind = exception_of(grpc.StatusCode[code_pb2.Code.Name(status.code)])
    if issubclass(kind, InvalidArgumentError):
        return kind(
            status.message,
            violations=[Violation(v.field, v.description) for v in bad.field_violations],
            reason=info.reason,
            metadata=info.metadata,
        )
    return kind(status.message, reason=info.reason, metadata=info.metadata)
