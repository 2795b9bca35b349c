"""Protobuf messages as plain data.

As ProtoJSON with the contract's own field names, but with 64-bit integers as
numbers: a script that compares `completed_steps` must not compare strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def to_plain(message: Message) -> dict[str, Any]:
    """A message as JSON values; unset fields without presence are left out."""
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def _field(field: FieldDescriptor, value: Any) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        of_value = entry.fields_by_name["value"]
        items: Mapping[Any, Any] = value
        return {str(key): _single(of_value, items[key]) for key in sorted(items)}
    if field.is_repeated:
        return [_single(field, item) for item in value]
    return _single(field, value)


def _single(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if field.message_type is None:
        return value
    if field.message_type.full_name.startswith("google.protobuf."):
        return json_format.MessageToDict(value)
    return to_plain(value)
