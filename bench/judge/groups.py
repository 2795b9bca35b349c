"""Groups of attempts of several kinds, each in ART's form: OpenAI messages.

Every attempt ends with `answer N`: what an honest judge goes by, so that two judges'
scores can be compared.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]

_SENTENCE = (
    "the search found seven messages about the invoice and none of them was from anna so it "
    "looked at the dates again and read each subject line before it chose one that names both "
    "the amount and the month which the question had asked for while two others came close"
)
_WORDS = _SENTENCE.split()
_SYSTEM = "You answer questions about a mailbox. Use the tools you are given."
_TASK = "Which message has the invoice of March, and what is its amount?"


@dataclass(frozen=True)
class Kind:
    """One group, and what is particular about it."""

    name: str
    attempts: list[list[Message]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    art_shows_nothing_of: frozenset[int] = frozenset()
    """Attempts that ART sends as `[]`, so that no judge can score them by content."""


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(_WORDS) for _ in range(words)).capitalize() + "."


def _message(role: str, content: str, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def _start(system_words: int, draw: random.Random) -> list[Message]:
    more = f" {_text(draw, system_words)}" if system_words else ""
    return [_message("system", _SYSTEM + more), _message("user", _TASK)]


def _answer(draw: random.Random, words: int, number: int) -> Message:
    return _message("assistant", f"{_text(draw, words)} answer {number}")


def _prose(
    name: str, system_words: int, words: int, count: int = 8, turns: int = 1
) -> Callable[[random.Random], Kind]:
    def make(draw: random.Random) -> Kind:
        start = _start(system_words, draw)
        attempts = []
        for number in range(count):
            talk: list[Message] = []
            for _ in range(turns - 1):
                talk.append(_message("assistant", _text(draw, words)))
                talk.append(_message("user", "Go on."))
            attempts.append([*start, *talk, _answer(draw, words, number)])
        return Kind(name, attempts)

    return make


_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
                "required": keys,
            },
        },
    }
    for name, description, keys in (
        ("search", "Searches the mailbox for words.", ["query", "folder"]),
        ("read", "Reads one message.", ["message_id"]),
    )
]


def _tool_calls(result: Callable[[random.Random], str], name: str) -> Callable[..., Kind]:
    def make(draw: random.Random) -> Kind:
        start = _start(20, draw)
        attempts = []
        for number in range(8):
            talk: list[Message] = []
            for _ in range(4):
                call_id = f"call_{draw.getrandbits(96):024x}"
                arguments = {"query": _text(draw, 4), "folder": "inbox"}
                function = {"name": "search", "arguments": json.dumps(arguments)}
                call = {"id": call_id, "type": "function", "function": function}
                talk.append(_message("assistant", "", tool_calls=[call]))
                talk.append(_message("tool", result(draw), tool_call_id=call_id))
            attempts.append([*start, *talk, _answer(draw, 20, number)])
        return Kind(name, attempts, _TOOLS)

    return make


def _json_result(draw: random.Random) -> str:
    rows = [{"id": draw.randrange(1000), "subject": _text(draw, 6)} for _ in range(4)]
    return json.dumps(rows)


def _html_result(draw: random.Random) -> str:
    rows = "".join(f'<li class="row"><b>{_text(draw, 4)}</b></li>\n' for _ in range(4))
    return f"<html><body>\n<ul>{rows}</ul>\n</body></html>"


def _duplicates(draw: random.Random) -> Kind:
    kind = _prose("duplicates: 3 distinct of 8", 40, 80, count=3)(draw)
    return Kind(kind.name, [kind.attempts[number % 3] for number in range(8)])


def _identical(draw: random.Random) -> Kind:
    kind = _prose("all 8 identical", 40, 80, count=1)(draw)
    return Kind(kind.name, kind.attempts * 8)


def _nothing_shared(draw: random.Random) -> Kind:
    attempts = []
    for number in range(8):
        system = _message("system", f"Run {number}. {_SYSTEM}")
        attempts.append([system, _message("user", _TASK), _answer(draw, 80, number)])
    return Kind("no common prefix", attempts)


def _strict_prefix(draw: random.Random) -> Kind:
    short = [*_start(40, draw), _answer(draw, 80, 0)]
    longer = [
        [*short, _message("user", "Are you sure?"), _answer(draw, 80, number)]
        for number in range(1, 8)
    ]
    return Kind("one attempt is a prefix of the others", [short, *longer], [], frozenset({0}))


def _chinese(draw: random.Random) -> Kind:
    characters = "查找邮件发票三月金额日期主题回复附件确认"
    start = [_message("system", "回答关于邮箱的问题。"), _message("user", "三月的发票是多少?")]
    attempts = []
    for number in range(8):
        text = "".join(draw.choice(characters) for _ in range(80))
        attempts.append([*start, _message("assistant", f"{text} answer {number}")])
    return Kind("Chinese", attempts)


def kinds(seed: int = 0) -> list[Kind]:
    """Every kind of group, the same for the same seed."""
    makers: tuple[Callable[[random.Random], Kind], ...] = (
        _prose("long shared prefix, short answers", 1500, 40),
        _prose("short shared prefix, long answers", 10, 400),
        _prose("8 attempts of 6 turns", 40, 60, turns=6),
        _prose("2 attempts of a few words", 0, 3, count=2),
        _prose("11 attempts of a few words", 0, 3, count=11),
        _prose("1 attempt", 40, 80, count=1),
        _tool_calls(_json_result, "tool calls, JSON results"),
        _tool_calls(_html_result, "tool calls, HTML results"),
        _duplicates,
        _identical,
        _nothing_shared,
        _strict_prefix,
        _chinese,
    )
    return [make(random.Random(f"{seed}-{number}")) for number, make in enumerate(makers)]
