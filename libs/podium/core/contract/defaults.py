"""Writes the contract's defaults into what a message leaves open."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract.rules import (
    descriptor_of,
    is_map,
    is_repeated,
    real_oneof,
    rules_of,
    value_of,
)
from podium.core.contract.scalars import from_text

M = TypeVar("M", bound=Message)

PRESENCE_IS_MEANING = frozenset(
    {"evaluation", "lora", "weighted", "ruler", "rubric", "http"}
    | {"client", "environment", "sft"}
    | {"tracking", "wandb", "langfuse", "mlflow", "openpipe"}
)
"""Fields whose absence says something: no evaluation, no adapter, another kind of scorer, no
client that brings the groups, no environment of the job's own, no rows, no tracker."""


def apply_defaults(message: M, skip: frozenset[str] = PRESENCE_IS_MEANING) -> M:
    """Fills in every default, in place, and returns the message.

    - An absent optional field with a `default_value` gets it; so does an enum
      that is there but UNSPECIFIED.
    - An absent sub-message that has defaults at any depth is made, unless its
      rule says `required` (making it would hide that it is missing), it is a
      choice of a oneof, or its name is in `skip`.
    - Sub-messages that are there are filled in whatever their name, in lists
      and maps too.
    """
    for field in descriptor_of(message).fields:
        if is_map(field):
            if value_of(field).message_type is not None:
                values = getattr(message, field.name)
                for key in values:
                    apply_defaults(values[key], skip)
        elif field.message_type is None:
            if not is_repeated(field):
                _fill(message, field)
        elif is_repeated(field):
            for item in getattr(message, field.name):
                apply_defaults(item, skip)
        elif message.HasField(field.name) or _may_make(field, skip):
            inner = getattr(message, field.name)
            inner.SetInParent()
            apply_defaults(inner, skip)
    return message


def _fill(message: Message, field: FieldDescriptor) -> None:
    rules = rules_of(field)
    if rules is None or not rules.default_value or real_oneof(field):
        return
    unset_enum = field.enum_type is not None and getattr(message, field.name) == 0
    if not message.HasField(field.name) or unset_enum:
        setattr(message, field.name, from_text(field, rules.default_value))


def _may_make(field: FieldDescriptor, skip: frozenset[str]) -> bool:
    rules = rules_of(field)
    if field.message_type is None or field.name in skip or real_oneof(field):
        return False
    return not (rules is not None and rules.required) and _has_defaults(field.message_type, skip)


@cache
def _has_defaults(descriptor: Descriptor, skip: frozenset[str]) -> bool:
    return _search(descriptor, skip, frozenset())


def _search(descriptor: Descriptor, skip: frozenset[str], seen: frozenset[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    deeper = seen | {descriptor.full_name}
    for field in descriptor.fields:
        rules = rules_of(field)
        if rules is not None and rules.default_value:
            return True
        if is_repeated(field) or field.message_type is None or field.name in skip:
            continue
        if not real_oneof(field) and _search(field.message_type, skip, deeper):
            return True
    return False
