"""Reads the rules of `podium.options.v1` from message descriptors, once each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.options.v1 import rules_pb2

INTEGERS = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
FLOATS = frozenset({FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE})


@cache
def rules_of(field: FieldDescriptor) -> rules_pb2.FieldRules | None:
    """The field's rules; None when it has none."""
    options = field.GetOptions()
    if not options.HasExtension(rules_pb2.rules):
        return None
    return options.Extensions[rules_pb2.rules]


def must_be_set(field: FieldDescriptor) -> bool:
    """Whether a message without the field is wrong."""
    rules = rules_of(field)
    if rules is None or field.has_presence or is_repeated(field):
        return rules is not None and rules.required
    # A number that cannot be absent is 0 when nobody set it.
    return (
        rules.required
        or (rules.HasField("min") and rules.min > 0)
        or (rules.HasField("above") and rules.above >= 0)
    )


@cache
def pattern_of(field: FieldDescriptor) -> re.Pattern[str] | None:
    """The compiled pattern; None when there is none."""
    rules = rules_of(field)
    return re.compile(rules.pattern) if rules is not None and rules.pattern else None


def descriptor_of(message: Message | type[Message]) -> Descriptor:
    """The message's descriptor, which the type stubs give two types."""
    return cast(Descriptor, message.DESCRIPTOR)


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether it is a list or a map. Protobuf before 6.31 says it by the label alone."""
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    label: int = getattr(field, "label", 0)
    return label == FieldDescriptor.LABEL_REPEATED


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def value_of(field: FieldDescriptor) -> FieldDescriptor:
    """The field of a map's values."""
    entry = field.message_type
    if entry is None:
        raise TypeError(f"{field.full_name} is no map")
    return entry.fields_by_name["value"]


def real_oneof(field: FieldDescriptor) -> str:
    """The name of the oneof that the field belongs to; empty outside one."""
    oneof = field.containing_oneof
    # `optional` makes a oneof of one, named after the field.
    if oneof is None or oneof.name == f"_{field.name}":
        return ""
    return str(oneof.name)


@cache
def checked_fields(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """Fields that have rules, or hold messages that have, at any depth.

    Everything else is never looked at: a trajectory's million token ids cost
    nothing to validate.
    """
    return tuple(f for f in descriptor.fields if _is_checked(f, frozenset({descriptor.full_name})))


def field_names(descriptor: Descriptor) -> Iterable[str]:
    """The names that a message accepts."""
    return (str(field.name) for field in descriptor.fields)


def _is_checked(field: FieldDescriptor, seen: frozenset[str]) -> bool:
    if rules_of(field) is not None:
        return True
    message = field.message_type
    if message is None or message.full_name in seen:
        return False
    deeper = seen | {message.full_name}
    return any(_is_checked(inner, deeper) for inner in message.fields)
