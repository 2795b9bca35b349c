"""Checks a message against the rules that its own descriptor carries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from podium.core.contract.rules import (
    FLOATS,
    INTEGERS,
    checked_fields,
    descriptor_of,
    is_map,
    pattern_of,
    rules_of,
    value_of,
)
from podium.core.contract.text import enum_names, number_text, shown
from podium.core.errors import Violation
from podium.options.v1 import rules_pb2

_Report = Callable[[str, str], None]


def validate(message: Message) -> list[Violation]:
    """Every violation in the message and all that it holds; empty when it is right.

    Paths are written `job.spec.training.steps`, `groups[2].id` and
    `metrics["loss"]`. Each text says what came and what is allowed.
    """
    violations: list[Violation] = []
    _message(message, "", lambda path, text: violations.append(Violation(path, text)))
    return violations


def check_value(field: FieldDescriptor, value: Any) -> str:
    """What is wrong with one scalar of the field; empty when nothing is."""
    rules = rules_of(field)
    if rules is None:
        return ""
    if field.cpp_type in INTEGERS or field.cpp_type in FLOATS:
        return _number(rules, value)
    if field.enum_type is not None:
        return _enum(field.enum_type, rules, value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return _string(field, rules, value)
    return ""


def allowed_numbers(rules: rules_pb2.FieldRules) -> str:
    """The bounds in words, `from 1 to 10` or `above 0`; empty without any."""
    low = f"from {number_text(rules.min)}" if rules.HasField("min") else ""
    if rules.HasField("above"):
        low = f"above {number_text(rules.above)}"
    high = f"to {number_text(rules.max)}" if rules.HasField("max") else ""
    if rules.HasField("below"):
        high = f"below {number_text(rules.below)}"
    if low.startswith("above") and high:
        return f"{low}, {'up ' if high.startswith('to') else ''}{high}"
    if low and not high:
        return low if low.startswith("above") else f"{low} up"
    if high and not low:
        return f"up {high}" if high.startswith("to") else high
    return f"{low}, {high}" if high.startswith("below") else f"{low} {high}".strip()


def _message(message: Message, prefix: str, report: _Report) -> None:
    for field in checked_fields(descriptor_of(message)):
        path = f"{prefix}{field.name}"
        if is_map(field):
            _map(message, field, path, report)
        elif field.is_repeated:
            _repeated(message, field, path, report)
        else:
            _singular(message, field, path, report)


def _singular(message: Message, field: FieldDescriptor, path: str, report: _Report) -> None:
    rules = rules_of(field)
    present = not field.has_presence or message.HasField(field.name)
    if not present:
        if rules is not None and rules.required:
            report(path, "is required")
        return
    value = getattr(message, field.name)
    if field.message_type is not None:
        _message(value, f"{path}.", report)
        return
    if rules is None:
        return
    if rules.required and _is_blank(field, value):
        report(path, f"is required{_choices(field)}")
        return
    if _too_long(rules, value):
        report(path, _length_text(rules, value))
        return
    text = check_value(field, value)
    if text and not value and not field.has_presence:
        text = text.replace("got 0", "is required; got 0 or nothing", 1)
    if text:
        report(path, text)


def _repeated(message: Message, field: FieldDescriptor, path: str, report: _Report) -> None:
    values = getattr(message, field.name)
    if not _count(field, len(values), path, report):
        return
    _items(field, ((f"{path}[{i}]", value) for i, value in enumerate(values)), report)


def _map(message: Message, field: FieldDescriptor, path: str, report: _Report) -> None:
    values = getattr(message, field.name)
    if not _count(field, len(values), path, report):
        return
    value_field = value_of(field)
    items = ((f"{path}[{shown(key)}]", values[key]) for key in values)
    if value_field.message_type is not None:
        for where, value in items:
            _message(value, f"{where}.", report)
        return
    rules = rules_of(field)
    if rules is not None and (value_field.cpp_type in INTEGERS or value_field.cpp_type in FLOATS):
        for where, value in items:
            text = _number(rules, value)
            if text:
                report(where, text)


def _items(field: FieldDescriptor, items: Iterable[tuple[str, Any]], report: _Report) -> None:
    if field.message_type is not None:
        for where, value in items:
            _message(value, f"{where}.", report)
        return
    for where, value in items:
        text = check_value(field, value)
        if text:
            report(where, text)


def _count(field: FieldDescriptor, count: int, path: str, report: _Report) -> bool:
    rules = rules_of(field)
    if rules is None:
        return True
    if rules.required and not count:
        report(path, "is required; got none")
    elif rules.HasField("max_len") and count > rules.max_len:
        # Its items are not looked at: one message may hold millions.
        report(path, f"got {count} items; allowed are at most {rules.max_len}")
        return False
    return True


def _is_blank(field: FieldDescriptor, value: Any) -> bool:
    if field.cpp_type in (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM):
        return not value
    return False


def _choices(field: FieldDescriptor) -> str:
    if field.enum_type is None:
        return "; got an empty value"
    return f"; allowed are {', '.join(enum_names(field.enum_type))}"


def _too_long(rules: rules_pb2.FieldRules, value: Any) -> bool:
    return (
        rules.HasField("max_len") and isinstance(value, str | bytes) and len(value) > rules.max_len
    )


def _length_text(rules: rules_pb2.FieldRules, value: str | bytes) -> str:
    unit = "characters" if isinstance(value, str) else "bytes"
    return f"got {len(value)} {unit}; allowed are at most {rules.max_len}"


def _number(rules: rules_pb2.FieldRules, value: float) -> str:
    bounds = allowed_numbers(rules)
    if not bounds:
        return ""
    wrong = (
        not math.isfinite(value)
        or (rules.HasField("min") and value < rules.min)
        or (rules.HasField("max") and value > rules.max)
        or (rules.HasField("above") and value <= rules.above)
        or (rules.HasField("below") and value >= rules.below)
    )
    return f"got {number_text(value)}; allowed are numbers {bounds}" if wrong else ""


def _enum(enum: EnumDescriptor, rules: rules_pb2.FieldRules, value: int) -> str:
    if value in enum.values_by_number and (value != 0 or not rules.required):
        return ""
    return f"got {value}; allowed are {', '.join(enum_names(enum))}"


def _string(field: FieldDescriptor, rules: rules_pb2.FieldRules, value: str) -> str:
    pattern = pattern_of(field)
    if pattern is None or not value or pattern.fullmatch(value):
        return ""
    return f"got {shown(value)}; allowed is what matches {rules.pattern}"
