"""The character U+0000, which no name of anything may hold.

PostgreSQL stores no text with it, nor does a file's name or a program's argument hold it. It is
refused where a request comes in, so that every database and service says the same of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract.rules import descriptor_of, is_map, value_of
from podium.core.contract.text import shown
from podium.core.errors import Violation

_NUL = "\0"
# What models, tools and environments say, and their data. It is stored as bytes, and what a model
# writes must not make a request of one service to another wrong.
_SAID = frozenset(
    {
        "podium.types.v1.Message",
        "podium.types.v1.Tool",
        "podium.types.v1.Trajectory",
        "podium.types.v1.Judgement",
        "google.protobuf.Struct",
        "google.protobuf.Value",
        "google.protobuf.ListValue",
    }
)


def nul_violations(message: Message) -> list[Violation]:
    """The texts of a request that hold U+0000, except in what was said in an episode."""
    return [
        Violation(path, "holds the character U+0000; allowed is text without it")
        for path in _found(message, "")
    ]


def _found(message: Message, prefix: str) -> Iterator[str]:
    for field in _text_fields(descriptor_of(message)):
        path = f"{prefix}{field.name}"
        if is_map(field):
            yield from _in_map(message, field, path)
        elif field.is_repeated:
            for index, value in enumerate(getattr(message, field.name)):
                yield from _in_value(value, f"{path}[{index}]")
        elif not field.has_presence or message.HasField(field.name):
            yield from _in_value(getattr(message, field.name), path)


def _in_map(message: Message, field: FieldDescriptor, path: str) -> Iterator[str]:
    values = getattr(message, field.name)
    has_text = _holds_text(value_of(field), frozenset())
    for key in values:
        where = f"{path}[{shown(key)}]"
        if isinstance(key, str) and _NUL in key:
            yield where
        elif has_text:
            yield from _in_value(values[key], where)


def _in_value(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Message):
        yield from _found(value, f"{path}.")
    elif _NUL in value:
        yield path


@cache
def _text_fields(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    """Those that are text or hold some: a million token ids cost nothing to check."""
    seen = frozenset({descriptor.full_name})
    return tuple(field for field in descriptor.fields if _holds_text(field, seen))


def _holds_text(field: FieldDescriptor, seen: frozenset[str]) -> bool:
    message = field.message_type
    if message is None:
        return field.type == FieldDescriptor.TYPE_STRING
    if message.full_name in _SAID or message.full_name in seen:
        return False
    deeper = seen | {message.full_name}
    return any(_holds_text(inner, deeper) for inner in message.fields)
