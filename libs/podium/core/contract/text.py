"""How values and enum names are written for people and read back."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from google.protobuf.descriptor import EnumDescriptor

_SHOWN = 80
# What other trainers call it, where no spelling is near.
_ELSEWHERE = {
    "grpo": "clipped",
    "ppo": "clipped",
    "dapo": "clipped",
    "sft": "supervised",
    "lr": "learning_rate",
    "num_generations": "group_size",
}


def shown(value: Any) -> str:
    """A value in an error text: quoted, and cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def number_text(value: float) -> str:
    """A number without a needless `.0` or exponent."""
    return str(int(value)) if value == int_or_none(value) and abs(value) < 1e15 else repr(value)


def int_or_none(value: float) -> int | None:
    """The integer that the number is; None when it is none."""
    try:
        return int(value) if value == int(value) else None
    except (OverflowError, ValueError):
        return None


@cache
def enum_prefix(enum: EnumDescriptor) -> str:
    """`ADVANTAGE_KIND_` of AdvantageKind."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"


@cache
def enum_names(enum: EnumDescriptor) -> tuple[str, ...]:
    """The short names, lower case, without UNSPECIFIED: `std`, `none`."""
    return tuple(short_name(enum, value.number) for value in enum.values if value.number)


def short_name(enum: EnumDescriptor, number: int) -> str:
    """`std` for ADVANTAGE_KIND_STD; the number itself when the enum lacks it."""
    value = enum.values_by_number.get(number)
    return value.name.removeprefix(enum_prefix(enum)).lower() if value else str(number)


def enum_number(enum: EnumDescriptor, text: str) -> int | None:
    """The number of a name, short or in full, in any case; None for no name of the enum."""
    upper = text.upper()
    value = enum.values_by_name.get(upper) or enum.values_by_name.get(enum_prefix(enum) + upper)
    return value.number if value else None


def nearest(name: str, allowed: Iterable[str]) -> str:
    """`; did you mean 'epsilon'?`, or nothing when nothing is near."""
    names = list(allowed)
    elsewhere = _ELSEWHERE.get(name.lower(), "")
    if elsewhere in names:
        return f"; did you mean {elsewhere!r}?"
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]!r}?" if found else ""
