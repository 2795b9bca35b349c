"""Messages of google.protobuf that are written as one value."""

from __future__ import annotations

import math
from typing import Any, cast

from google.protobuf import duration_pb2, json_format, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract.scalars import WrongValueError, kind_of

_STRUCT = struct_pb2.Struct.DESCRIPTOR.full_name
_VALUE = struct_pb2.Value.DESCRIPTOR.full_name
_LIST = struct_pb2.ListValue.DESCRIPTOR.full_name
_TIMES = {
    timestamp_pb2.Timestamp.DESCRIPTOR.full_name: "a time such as 2026-01-31T12:00:00Z",
    duration_pb2.Duration.DESCRIPTOR.full_name: "a duration such as 90s",
}
_KINDS = {_STRUCT: (dict, "a mapping"), _LIST: (list, "a list"), _VALUE: (object, "")}
# Beyond it a double skips whole numbers, and would silently change them.
_MOST_WHOLE = 2**53


def is_special(descriptor: Descriptor) -> bool:
    """Whether messages of the type are written as one value."""
    return descriptor.full_name in _KINDS or descriptor.full_name in _TIMES


def takes_null(field: FieldDescriptor) -> bool:
    """Whether `null` is a value of the field and not its absence."""
    return field.message_type is not None and field.message_type.full_name == _VALUE


def type_name(descriptor: Descriptor) -> str:
    """The type in the words of a job file."""
    return {_STRUCT: "mapping", _LIST: "list", _VALUE: "any value"}.get(
        descriptor.full_name, descriptor.name.lower()
    )


def fill(message: Message, value: Any) -> None:
    """Writes a JSON value into the message.

    Raises:
        WrongValueError: the message cannot hold it.
    """
    name = message.DESCRIPTOR.full_name
    if name in _TIMES:
        try:
            message.FromJsonString(value)  # type: ignore[attr-defined]
        except (AttributeError, TypeError, ValueError, OverflowError):
            raise WrongValueError(f"got {_words(value)}; allowed is {_TIMES[name]}") from None
        return
    kind, words = _KINDS[name]
    if not isinstance(value, kind):
        raise WrongValueError(f"got {_words(value)}; allowed is {words}")
    _check(value)
    json_format.ParseDict(cast(dict[str, Any], value), message)


def plain(message: Message) -> Any:
    """The JSON value that the message holds."""
    if message.DESCRIPTOR.full_name in _TIMES:
        return message.ToJsonString()  # type: ignore[attr-defined]
    return json_format.MessageToDict(message)


def _check(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise WrongValueError(f"got {kind_of(value)}; allowed are finite numbers")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MOST_WHOLE:
        raise WrongValueError(
            f"got {kind_of(value)}; allowed are whole numbers up to 2^53:"
            " put greater ones in quotes"
        )


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else kind_of(value)
