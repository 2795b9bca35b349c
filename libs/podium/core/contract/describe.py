"""What may stand in a file: every field with its type, default and limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract import well_known
from podium.core.contract.rules import descriptor_of, is_map, must_be_set, rules_of, value_of
from podium.core.contract.scalars import type_name
from podium.core.contract.text import enum_names, short_name
from podium.core.contract.validate import allowed_numbers


class FieldRow(NamedTuple):
    """One field; `path` writes `[]` for a list's items and `{}` for a map's values."""

    path: str
    type: str
    required: bool
    default: str
    allowed: str


def describe_fields(message_class: type[Message]) -> list[FieldRow]:
    """Every field of the message and of those that it holds, in the contract's order.

    Comments are not here: descriptors do not carry them at run time.
    """
    return list(_rows(descriptor_of(message_class), "", frozenset()))


def _rows(descriptor: Descriptor, prefix: str, seen: frozenset[str]) -> Iterator[FieldRow]:
    if descriptor.full_name in seen:
        return
    deeper = seen | {descriptor.full_name}
    for field in descriptor.fields:
        yield _row(field, prefix)
        inner = value_of(field).message_type if is_map(field) else field.message_type
        if inner is None or well_known.is_special(inner):
            continue
        suffix = "{}" if is_map(field) else "[]" if field.is_repeated else ""
        yield from _rows(inner, f"{prefix}{field.name}{suffix}.", deeper)


def _row(field: FieldDescriptor, prefix: str) -> FieldRow:
    rules = rules_of(field)
    default = rules.default_value if rules is not None else ""
    if default and field.enum_type is not None:
        default = short_name(field.enum_type, field.enum_type.values_by_name[default].number)
    return FieldRow(
        path=f"{prefix}{field.name}",
        type=_type(field),
        required=must_be_set(field),
        default=default,
        allowed=_allowed(field),
    )


def _type(field: FieldDescriptor) -> str:
    if is_map(field):
        return f"mapping of {_one(value_of(field))}"
    return f"list of {_one(field)}" if field.is_repeated else _one(field)


def _one(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is None:
        return type_name(field)
    return well_known.type_name(message) if well_known.is_special(message) else "section"


def _allowed(field: FieldDescriptor) -> str:
    rules = rules_of(field)
    texts = []
    if field.enum_type is not None:
        texts.append(", ".join(enum_names(field.enum_type)))
    if rules is not None:
        texts.append(allowed_numbers(rules))
        if rules.pattern:
            texts.append(f"matches {rules.pattern}")
        if rules.HasField("max_len"):
            unit = "items" if field.is_repeated else "characters"
            texts.append(f"at most {rules.max_len} {unit}")
    return "; ".join(text for text in texts if text)
