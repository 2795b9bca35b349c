"""What the formats of tool calls share: a call, a reply taken apart, and JSON as JSON has it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from podium.core.outside import MOST_NAME_CHARS

_MOST_MALFORMED = 64
"""Calls that cannot be read, after which none is looked for: each may look to the reply's end."""
SHOWN = 80
"""Characters of what a model wrote that an error repeats."""


class UnreadableError(ValueError):
    """Says what is wrong with a call."""


@dataclass(frozen=True)
class Call:
    """A call as it was written; `id` is empty where the format has none."""

    name: str
    arguments_json: str
    id: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise UnreadableError("it has no name")
        if max(len(self.name), len(self.id)) > MOST_NAME_CHARS:
            raise UnreadableError(f"its name or id is longer than {MOST_NAME_CHARS} characters")
        _check_numbers(self.arguments_json)


@dataclass
class ParsedReply:
    """A reply, taken apart."""

    content: str = ""
    calls: list[Call] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)


def cut(
    reply: str,
    pattern: re.Pattern[str],
    read: Callable[[str, re.Match[str]], tuple[list[Call], int]],
) -> ParsedReply:
    """Takes the calls that begin where `pattern` matches out of the reply.

    Args:
        read: of the reply and a match the calls there, and where they end.
    """
    found, content, position = ParsedReply(), "", 0
    while len(found.malformed) < _MOST_MALFORMED:
        match = pattern.search(reply, position)
        if match is None:
            break
        content += reply[position : match.start()]
        try:
            calls, position = read(reply, match)
            found.calls += calls
        except UnreadableError as error:
            found.malformed.append(str(error))
            content += match[0]
            position = match.end()
    found.content = (content + reply[position:]).strip()
    return found


def named(value: Any, name_key: str, *keys: str, id_key: str = "id") -> Call:
    """A call from its JSON object; `keys` may hold the arguments.

    Raises:
        UnreadableError: it is none.
    """
    if not isinstance(value, dict):
        raise UnreadableError("it is no JSON object")
    name = value.get(name_key)
    if not isinstance(name, str) or not name:
        raise UnreadableError("it has no name")
    arguments: Any = next((value[key] for key in keys if key in value), {})
    call_id = value.get(id_key)
    encoded = arguments if isinstance(arguments, str) else written(arguments)
    return Call(name, encoded, call_id if isinstance(call_id, str) else "")


def written(arguments: Any) -> str:
    """As JSON.

    Raises:
        UnreadableError: they are nested too deep, or have a number of too many digits.
    """
    try:
        return json.dumps(arguments)
    except (ValueError, RecursionError):
        raise UnreadableError("its arguments are nested too deep") from None


def loads(text: str) -> Any:
    """The whole text as JSON.

    Raises:
        UnreadableError: it is none.
    """
    value, end = json_at(text, 0)
    if text[end:].strip():
        raise UnreadableError("something follows its JSON")
    return value


def json_at(text: str, position: int) -> tuple[Any, int]:
    """The JSON value there, and where it ends.

    Raises:
        UnreadableError: there is none.
    """
    try:
        return _DECODER.raw_decode(text, position)
    except UnreadableError:
        raise
    except RecursionError:
        raise UnreadableError("its JSON is nested too deep") from None
    except ValueError as error:
        # Without a message of the parser's: Python reads no longer integers.
        why = getattr(error, "msg", "a number has too many digits")
        shown = text[position : position + SHOWN]
        raise UnreadableError(f"{shown!r} is no JSON: {why}") from None


def _no_constant(name: str) -> NoReturn:
    raise UnreadableError(f"{name} is no JSON number")


def _real(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise UnreadableError(f"{digits[:SHOWN]} is too great a number")
    return number


def _check_numbers(arguments: str) -> None:
    """Of arguments that are JSON; some formats hand on what is none."""
    try:
        _DECODER.decode(arguments)
    except UnreadableError:
        raise
    except (ValueError, RecursionError):
        pass


# Python reads NaN, and 1e999 as infinity; tools that are given them as JSON again cannot.
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_real)
