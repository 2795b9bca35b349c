"""Text and numbers from outside, as protobuf, JSON and databases can carry them.

Models, judges, agents and environments say what they like: half of a surrogate pair, NUL,
a number of a thousand digits. Whatever becomes a message goes through here first. It is
for people, judges and tools; the record of sampled tokens is never touched.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.struct_pb2 import Struct, Value

REPLACEMENT = "\ufffd"
"""Unicode's own sign for what cannot be shown."""

MOST_NESTED = 28
"""Objects and lists inside each other: protobuf reads 100 levels, and Struct takes three each."""

MOST_COUNTED = 10**12
"""The greatest count that is believed."""

MOST_NAME_CHARS = 256
"""Of a tool's name and of a call's id, by the contract."""

# In turns: a pair, which stays; what cannot be carried; any other escape, so that the
# backslash of an escaped backslash begins none.
_ESCAPE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\u0000)"
    r"|(\\.)",
    re.DOTALL,
)


def clean(text: str) -> str:
    """`text` as UTF-8 and PostgreSQL have it; what they lack becomes U+FFFD.

    Two halves of a surrogate pair that stand together become their character.
    """
    if "\0" in text:
        text = text.replace("\0", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def name_of(text: str) -> str:
    """A tool's name, or a call's id, as the contract has them: clean and not too long."""
    return clean(text)[:MOST_NAME_CHARS]


def clean_json(text: str) -> str:
    """JSON, or what was meant to be JSON, whose strings are clean once they are decoded."""
    text = clean(text)
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if found[2] else found[0], text)


def count_of(value: Any) -> int:
    """A count that an API tells: 0 for what is none, never above `MOST_COUNTED`."""
    try:
        number = float(value or 0)
    except (TypeError, ValueError):
        return 0
    except OverflowError:
        return MOST_COUNTED
    if math.isnan(number):
        return 0
    return int(min(max(number, 0), MOST_COUNTED))


def struct_of(values: Mapping[str, Any]) -> Struct:
    """JSON values as a Struct that every service can read; never raises.

    What a Struct lacks is written as text: numbers beyond a double's, and what is nested
    deeper than `MOST_NESTED`.
    """
    result = Struct()
    result.update({clean(str(key)): _carried(inner, 1) for key, inner in values.items()})
    return result


def plain_of(struct: Struct) -> dict[str, Any]:
    """A Struct as JSON values; never raises. Numbers that JSON lacks, such as NaN, are text."""
    return {key: _plain(value) for key, value in struct.fields.items()}


def whole_numbers(value: Any) -> Any:
    """Struct has only floats; an API that wants a whole number refuses 7.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: whole_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole_numbers(inner) for inner in value]
    return value


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists stand inside each other more than `levels` times."""
    if not isinstance(value, Mapping | list | tuple):
        return False
    if levels == 0:
        return True
    inner = value.values() if isinstance(value, Mapping) else value
    return any(is_nested_deeper(each, levels - 1) for each in inner)


def _carried(value: Any, depth: int) -> Any:
    match value:
        case str():
            return clean(value)
        case None | bool():
            return value
        case int() | float():
            return _number(value)
        case Mapping() if depth < MOST_NESTED:
            return {clean(str(key)): _carried(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple() if depth < MOST_NESTED:
            return [_carried(inner, depth + 1) for inner in value]
        case _:
            return _as_text(value)


def _number(value: float) -> float | str:
    try:
        number = float(value)
    except OverflowError:
        return f"an integer of {int(value).bit_length()} bits"
    return number if math.isfinite(number) else str(number)


def _as_text(value: Any) -> str:
    try:
        if isinstance(value, Mapping | list | tuple):
            return clean_json(json.dumps(value, default=str))
        return clean(str(value))
    except (ValueError, TypeError, RecursionError):
        return f"[{type(value).__name__}]"


def _plain(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return number if math.isfinite(number) else str(number)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return plain_of(value.struct_value)
        case "list_value":
            return [_plain(inner) for inner in value.list_value.values]
    return None
