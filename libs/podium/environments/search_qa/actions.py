"""What the agent may do, as tools and as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from podium.environments.types import Message, Tool, ToolCall

Verb = Literal["search", "answer"]

TOOLS = (
    Tool(
        "search",
        "Shows the documents that fit the words best.",
        {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "words to look for"}},
            "required": ["query"],
        },
    ),
    Tool(
        "answer",
        "Ends with the answer to the question, in as few words as possible.",
        {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "the answer"}},
            "required": ["text"],
        },
    ),
)
MOST_CALLS = 8
"""In one turn; further ones are refused, each by itself."""

_PARAMETERS: dict[str, tuple[Verb, str]] = {
    "search": ("search", "query"),
    "answer": ("answer", "text"),
}
_ACTION = re.compile(r"\s*(search|answer):[ \t]*([^\n]*)", re.IGNORECASE)
_SHOWN = 80


@dataclass(frozen=True)
class SearchAction:
    """Something to do, or in `error` why it cannot be done; `call` asked for it, if one did."""

    verb: Verb | None = None
    argument: str = ""
    error: str = ""
    call: ToolCall | None = None


def actions_of(message: Message) -> Iterator[SearchAction]:
    """The actions of a message: one a tool call, or the one that its text begins with."""
    for number, call in enumerate(message.tool_calls):
        if number < MOST_CALLS:
            yield _from_call(call)
        else:
            yield SearchAction(error=f"Error: at most {MOST_CALLS} calls in one turn.", call=call)
    if message.tool_calls:
        return
    match = _ACTION.match(message.content)
    if match is None:
        yield SearchAction(
            error="Unknown action. Call search or answer, or write search: <words> "
            "or answer: <text>"
        )
    elif match[1].lower() == "search":
        yield SearchAction("search", match[2].strip())
    else:
        yield SearchAction("answer", match[2].strip())


def _from_call(call: ToolCall) -> SearchAction:
    if call.name not in _PARAMETERS:
        wrong = f"Error: there is no tool {call.name[:_SHOWN]!r}; there are search and answer."
        return SearchAction(error=wrong, call=call)
    verb, parameter = _PARAMETERS[call.name]
    try:
        value = json.loads(call.arguments_json)[parameter]
    except (ValueError, KeyError, TypeError, RecursionError):
        value = None
    if not isinstance(value, str):
        wrong = (
            f"Error: got the arguments {call.arguments_json[:_SHOWN]!r}; "
            f'allowed is {{"{parameter}": "a text"}}.'
        )
        return SearchAction(error=wrong, call=call)
    return SearchAction(verb, value.strip(), call=call)
