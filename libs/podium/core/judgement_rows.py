"""Judgements as plain data, for files and pages, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from podium.types.v1 import trajectory_pb2 as pb

Plain = dict[str, Any]


def judgement_to_plain(judgement: pb.Judgement) -> Plain:
    """Every field by its name; None where one is absent, and for a number that is none."""
    return _plain(judgement)


def judgement_of(plain: Mapping[str, Any]) -> pb.Judgement:
    """From what `judgement_to_plain` says; a field that it lacks is absent.

    Raises:
        TypeError, ValueError: a field that is none, or of another type.
    """
    made = pb.Judgement()
    _fill(made, plain)
    return made


def _plain(message: Message) -> Plain:
    found: Plain = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        elif isinstance(value, float):
            found[field.name] = value if math.isfinite(value) else None
        elif isinstance(value, str | bool | int):
            found[field.name] = value
        else:
            found[field.name] = [_plain(e) if isinstance(e, Message) else e for e in value]
    return found


def _fill(made: Message, plain: Mapping[str, Any]) -> None:
    known = made.DESCRIPTOR.fields_by_name
    for name, value in plain.items():
        if name not in known:
            raise ValueError(f"{made.DESCRIPTOR.name} has no {name!r}")
        if isinstance(value, list):
            target = getattr(made, name)
            for each in value:
                if isinstance(each, Mapping):
                    _fill(target.add(), each)
                else:
                    target.append(each)
        elif value is not None:
            setattr(made, name, value)
