"""Worked examples, shown to the agent as earlier turns of its conversation with an MCP server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict

from podium.core.contract.text import nearest, shown
from podium.core.errors import Violation
from podium.environments.types import Message, Tool, ToolCall, assistant, tool_result, user

MOST_EXAMPLES = 16
MOST_CALLS = 16
MOST_CHARACTERS = 32_000
_DEEPEST = 8
_SHOWN = 20
_ELSEWHERE = {"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties"}
"""Where a schema may name more properties."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("allowed are texts that are not empty")
    return text


def _json(arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"allowed are JSON values: {error}") from error
    return arguments


Said = Annotated[str, AfterValidator(_said)]


class ExampleCall(BaseModel):
    """A call of one of the server's tools, and its result."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    arguments: Annotated[dict[str, Any], AfterValidator(_json)] = {}
    result: str
    """What the agent reads; nothing is called."""


class Example(BaseModel):
    """A task of a user's, the calls that the agent makes, one a turn, and what it then says."""

    model_config = ConfigDict(extra="forbid")

    task: Said
    calls: list[ExampleCall] = []
    answer: Said


def size_faults(examples: Sequence[Example], field: str) -> Iterator[Violation]:
    """Whether there are too many, or too long ones: they stand in the prompt of every turn."""
    if len(examples) > MOST_EXAMPLES:
        yield Violation(field, f"got {len(examples)} examples; allowed are {MOST_EXAMPLES}")
    for place, example in enumerate(examples):
        if len(example.calls) > MOST_CALLS:
            got = f"got {len(example.calls)} calls; allowed are {MOST_CALLS}"
            yield Violation(f"{field}.{place}.calls", got)
    characters = sum(len(text) for example in examples for text in _texts(example))
    if characters > MOST_CHARACTERS:
        got = f"got {characters} characters in all examples; allowed are {MOST_CHARACTERS}"
        yield Violation(field, got)


def call_faults(examples: Sequence[Example], tools: Sequence[Tool], field: str) -> list[Violation]:
    """Calls of tools that are not on offer, or with arguments that their schema does not have.

    The first twenty. Of a schema count names, `required`, `type` and `enum`, in objects within
    objects too. Patterns and references do not: the server writes them, and they can take for
    ever.
    """
    return list(islice(_call_faults(examples, {tool.name: tool for tool in tools}, field), _SHOWN))


def _call_faults(
    examples: Sequence[Example], known: Mapping[str, Tool], field: str
) -> Iterator[Violation]:
    for place, example in enumerate(examples):
        for number, call in enumerate(example.calls):
            at = f"{field}.{place}.calls.{number}"
            if call.tool not in known:
                why = f"got {shown(call.tool)}, no tool on offer{_meant(call.tool, known)}"
                yield Violation(f"{at}.tool", why)
            else:
                schema = known[call.tool].parameters
                yield from _faults(call.arguments, schema, f"{at}.arguments", 0)


def turns(examples: Sequence[Example]) -> list[Message]:
    """The messages, before those of the task.

    Ids of calls are those that a reply's would have, had the agent made them.
    """
    said: list[Message] = []
    made = 0
    for example in examples:
        said.append(user(example.task))
        for each in example.calls:
            arguments = json.dumps(each.arguments, ensure_ascii=False)
            call = ToolCall(f"call{made:05d}", each.tool, arguments)
            made += 1
            said += [Message("assistant", tool_calls=(call,)), tool_result(call, each.result)]
        said.append(assistant(example.answer))
    return said


def _texts(example: Example) -> Iterator[str]:
    yield from (example.task, example.answer)
    for call in example.calls:
        yield from (call.tool, call.result, json.dumps(call.arguments, ensure_ascii=False))


def _faults(value: Any, schema: Any, at: str, depth: int) -> Iterator[Violation]:
    # The server may have written anything at all.
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    kind, options = schema.get("type"), schema.get("enum")
    named = kind if isinstance(kind, list) else [kind]
    kinds = [each for each in named if isinstance(each, str) and each in _TYPES]
    if kinds and not any(_is(value, each) for each in kinds):
        yield Violation(at, f"got {shown(value)}; the tool's schema allows {' or '.join(kinds)}")
        return
    if isinstance(options, list) and value not in options:
        yield Violation(at, f"got {shown(value)}; the tool's schema allows {shown(options)}")
        return
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, Mapping):
        return
    required = schema.get("required")
    for name in required if isinstance(required, list) else []:
        if isinstance(name, str) and name not in value:
            yield Violation(f"{at}.{name}", "is missing, and the tool's schema requires it")
    # A name that the schema says nothing about is a mistake in an example.
    others = schema.get("additionalProperties", False) is not False or _ELSEWHERE & schema.keys()
    for name, each in value.items():
        if name in properties:
            yield from _faults(each, properties[name], f"{at}.{name}", depth + 1)
        elif not others:
            why = f"the tool's schema has no such argument{_meant(name, properties)}"
            yield Violation(f"{at}.{name}", why)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _meant(name: str, known: Iterable[str]) -> str:
    # A server may offer any number.
    names = list(islice(known, _SHOWN))
    return nearest(name, names) or f"; there are {', '.join(names) or 'none'}"
