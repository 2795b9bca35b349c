"""`--set training.loss.epsilon=0.1`: one field by its path."""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml
from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract import well_known
from podium.core.contract.nodes import compose
from podium.core.contract.reader import NodeReader
from podium.core.contract.rules import descriptor_of, field_names, is_map, value_of
from podium.core.contract.scalars import WrongValueError, from_text
from podium.core.contract.text import nearest
from podium.core.contract.validate import check_value
from podium.core.errors import InvalidArgumentError, Violation

_PART = re.compile(r"([^.\[\]]+)((?:\[\d+\])*)")


def set_path(message: Message, path: str, text: str) -> None:
    """Sets a field, making the messages on its way.

    `reward.scorers[0].kind` names a list's item, or with the next free index
    a new one; `environment.config.inbox_size` goes on into free-form
    mappings. Lists and mappings are written as YAML: `[a, b]`, `{a: 1}`.

    Raises:
        InvalidArgumentError: no such field (with the nearest name), or a
            value that it does not take.
    """
    # On a copy: what is refused half-way must leave nothing behind.
    changed = type(message)()
    changed.CopyFrom(message)
    _set(changed, _parts(path), 0, path, text)
    message.CopyFrom(changed)


def _parts(path: str) -> list[str | int]:
    parts: list[str | int] = []
    for piece in path.split("."):
        found = _PART.fullmatch(piece)
        if found is None:
            _refuse(path, "allowed are paths such as training.loss.epsilon and reward.scorers[0]")
        parts.append(found[1])
        parts.extend(int(index) for index in re.findall(r"\d+", found[2]))
    return parts


def _set(message: Message, parts: list[str | int], at: int, path: str, text: str) -> None:
    if isinstance(message, struct_pb2.Struct):
        _set_free(message, parts[at:], path, text)
        return
    name = parts[at]
    field = descriptor_of(message).fields_by_name.get(name) if isinstance(name, str) else None
    names = list(field_names(descriptor_of(message)))
    if field is None:
        hint = nearest(str(name), names) or f"; allowed are {', '.join(names)}"
        _refuse(path, f"there is no field {str(name)!r}{hint}")
    rest = parts[at + 1 :]
    if not rest:
        _assign(message, field, path, text)
    elif is_map(field):
        _set_entry(message, field, parts, at + 1, path, text)
    elif field.is_repeated:
        _set_item(message, field, parts, at + 1, path, text)
    elif field.message_type is None or well_known.is_special(field.message_type):
        inner = getattr(message, field.name)
        if not isinstance(inner, struct_pb2.Struct):
            _refuse(path, f"{field.name} has no fields")
        _set(inner, parts, at + 1, path, text)
    else:
        _set(getattr(message, field.name), parts, at + 1, path, text)


def _set_item(
    message: Message, field: FieldDescriptor, parts: list[str | int], at: int, path: str, text: str
) -> None:
    values = getattr(message, field.name)
    index = parts[at]
    if not isinstance(index, int) or index > len(values):
        _refuse(path, f"{field.name} is a list of {len(values)}; allowed is [0] to [{len(values)}]")
    if field.message_type is None:
        if at + 1 < len(parts):
            _refuse(path, f"an item of {field.name} has no fields")
        value = _scalar(field, path, text)
        values[index : index + 1] = [value]
        return
    if at + 1 == len(parts):
        _refuse(path, f"an item of {field.name} has fields; name one of them")
    item = values[index] if index < len(values) else values.add()
    _set(item, parts, at + 1, path, text)


def _set_entry(
    message: Message, field: FieldDescriptor, parts: list[str | int], at: int, path: str, text: str
) -> None:
    assert field.message_type is not None
    try:
        key = from_text(field.message_type.fields_by_name["key"], str(parts[at]))
    except WrongValueError as error:
        _refuse(path, str(error))
    value_field = value_of(field)
    values = getattr(message, field.name)
    if value_field.message_type is not None:
        if at + 1 == len(parts):
            _refuse(path, f"an entry of {field.name} has fields; name one of them")
        _set(values[key], parts, at + 1, path, text)
    elif at + 1 < len(parts):
        _refuse(path, f"an entry of {field.name} has no fields")
    else:
        values[key] = _scalar(value_field, path, text)


def _set_free(message: struct_pb2.Struct, keys: list[str | int], path: str, text: str) -> None:
    plain: Any = well_known.plain(message)
    inner = plain
    for key in keys[:-1]:
        inner = inner.setdefault(str(key), {})
        if not isinstance(inner, dict):
            _refuse(path, f"{key} holds a value, not a mapping")
    holder = struct_pb2.Struct()
    _read(f"value: {text}" if text.strip() else "value: ''", holder, path)
    inner[str(keys[-1])] = well_known.plain(holder)["value"]
    message.Clear()
    try:
        well_known.fill(message, plain)
    except WrongValueError as error:
        _refuse(path, str(error))


def _assign(message: Message, field: FieldDescriptor, path: str, text: str) -> None:
    if field.message_type is None and not field.is_repeated:
        setattr(message, field.name, _scalar(field, path, text))
        return
    # Replaced, not merged: what was there before is not what was asked for.
    message.ClearField(field.name)
    node, refusals = compose(text)
    reader = NodeReader()
    if node is not None and not refusals:
        reader.field(node, message, field, path)
    _raise(path, refusals + reader.violations)


def _scalar(field: FieldDescriptor, path: str, text: str) -> Any:
    try:
        value = from_text(field, text)
    except WrongValueError as error:
        _refuse(path, str(error))
    wrong = check_value(field, value)
    if wrong:
        _refuse(path, wrong)
    return value


def _read(text: str, message: Message, path: str) -> None:
    node, refusals = compose(text)
    reader = NodeReader()
    if isinstance(node, yaml.MappingNode) and not refusals:
        reader.message(node, message, path)
    _raise(path, refusals + reader.violations)


def _raise(path: str, violations: list[Violation]) -> None:
    if violations:
        raise InvalidArgumentError(
            violations=[Violation(v.field or path, v.description) for v in violations],
            reason="INVALID_FIELDS",
        )


def _refuse(path: str, text: str) -> NoReturn:
    raise InvalidArgumentError(violations=[Violation(path, text)], reason="INVALID_FIELDS")
