"""Rows in the form of OpenAI's fine-tuning files, read strictly: nothing is lost in silence.

    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}],
     "tools": […]}

Each of the assistant's messages trains but those with `"weight": 0`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podium.core.errors import Violation
from podium.core.openai_messages import message_of, tools_of
from podium.core.outside import MOST_NAME_CHARS, MOST_NESTED, clean, is_nested_deeper
from podium.environments.scenarios.rows import kind_of
from podium.types.v1 import trajectory_pb2 as pb

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_TEXT_PARTS = ("text", "input_text", "output_text")
_UNREAD = ("audio", "images", "refusal")
_SHOWN = 60
_NAMED = 6


@dataclass(frozen=True)
class Conversation:
    """A row: what was said, and which of it trains."""

    where: str
    """`train.jsonl:3`."""
    messages: list[pb.Message]
    tools: list[pb.Tool] = field(default_factory=list)
    trained: tuple[int, ...] = ()
    """Places of the messages that train, ascending, at least one."""


def conversation_of(
    values: Mapping[str, Any], where: str, *, columns: bool = False
) -> Conversation | list[Violation]:
    """The row, or everything that is wrong with it; never raises.

    Args:
        where: what errors begin with.
        columns: whether nested values are of a table's columns, as in Parquet, where each
            object has the keys of all, with null for those that it has not itself.
    """
    found: list[Violation] = []

    def wrong(path: str, text: str) -> None:
        found.append(Violation(f"{where}: {path}" if path else where, text))

    given = _unpacked(values.get("messages"))
    messages: list[Mapping[str, Any]] = []
    if given is None:
        there = ", ".join(map(_shown, [*values][:_NAMED]))
        has = f"; the row has {there}" if there else ""
        wrong(
            "messages",
            f"is required: a list of messages as OpenAI's chat completions write them{has}",
        )
    elif not isinstance(given, list):
        wrong("messages", f"got {kind_of(given)}; allowed is a list of messages")
    elif not given:
        wrong("messages", "got an empty list")
    else:
        for index, each in enumerate(given):
            if isinstance(each, Mapping):
                messages.append(_without_nulls(each))
                _check(messages[-1], f"messages[{index}]", wrong)
                if columns:
                    _check_columns(messages[-1], f"messages[{index}]", wrong)
            else:
                wrong(f"messages[{index}]", f"got {kind_of(each)}; allowed is an object")
    if values.get("functions"):
        wrong(
            "functions",
            'is the older form; write tools: [{"type": "function", "function": each of them}]',
        )
    tools = _tools(_unpacked(values.get("tools")), wrong)
    if columns:
        tools = _deeply_without_nulls(tools)
    if found:
        return found
    trained = tuple(
        index
        for index, each in enumerate(messages)
        if each["role"] == "assistant" and each.get("weight", 1)
    )
    if not trained:
        own = sum(each["role"] == "assistant" for each in messages)
        said = f"got {own}, all of weight 0" if own else "got none"
        wrong("messages", f"{said}; at least one message of the assistant's must train")
        return found
    return Conversation(where, list(_messages(messages)), tools_of({"tools": tools}), trained)


def _messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[pb.Message]:
    names: dict[str, str] = {}
    for plain in messages:
        made = message_of({**plain, "tool_calls": _calls(plain)})
        thought = next((plain[key] for key in _THOUGHTS if key in plain), None)
        if thought is not None:
            made.reasoning = thought
        names.update({call.id: call.name for call in made.tool_calls})
        if made.role == pb.ROLE_TOOL and not made.name:
            # Templates write it, and rows seldom repeat it.
            made.name = names.get(made.tool_call_id, "")
        yield made


def _calls(plain: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls = []
    for each in plain.get("tool_calls", ()):
        function = _without_nulls(each["function"])
        if isinstance(arguments := function.get("arguments", {}), Mapping):
            function["arguments"] = json.dumps(arguments, ensure_ascii=False)
        calls.append({**each, "function": function})
    return calls


Wrong = Callable[[str, str], None]


def _check(message: Mapping[str, Any], path: str, wrong: Wrong) -> None:
    role = message.get("role")
    if role not in ROLES:
        there = ", ".join(map(_shown, [*message][:_NAMED])) or "nothing"
        got = f"got {_shown(role)}" if role is not None else f"is required, and there is {there}"
        wrong(f"{path}.role", f"{got}; allowed are {', '.join(ROLES)}")
        return
    for key in _UNREAD:
        if key in message:
            wrong(f"{path}.{key}", "is not read here; allowed are content and tool_calls")
    said = _check_content(message.get("content"), f"{path}.content", wrong)
    if role != "assistant" and "content" not in message:
        there = ", ".join(map(_shown, [*message][:_NAMED]))
        wrong(f"{path}.content", f"is required, and there is {there}; '' says nothing")
    if "function_call" in message:
        wrong(
            f"{path}.function_call",
            'is the older form; write tool_calls: [{"id": …, "type": "function", "function": it}],'
            " and answer it by role 'tool' with that tool_call_id",
        )
        said = True
    for key in _THOUGHTS:
        if key not in message:
            continue
        if role != "assistant":
            wrong(f"{path}.{key}", f"got it of {role!r}; only the assistant thinks")
        said |= _check_text(message[key], f"{path}.{key}", wrong)
    calls = message.get("tool_calls", [])
    if calls and role != "assistant":
        wrong(f"{path}.tool_calls", f"got it of {role!r}; only the assistant calls")
    elif not isinstance(calls, list):
        wrong(f"{path}.tool_calls", f"got {kind_of(calls)}; allowed is a list")
    else:
        for index, call in enumerate(calls):
            _check_call(call, f"{path}.tool_calls[{index}]", wrong)
    if role == "assistant" and not said and not calls:
        wrong(path, "says nothing: it has neither content nor tool_calls")
    for key in ("name", "tool_call_id"):
        if key in message:
            _check_name(message[key], f"{path}.{key}", wrong)
    _check_weight(message, path, wrong)


def _check_columns(message: Mapping[str, Any], path: str, wrong: Wrong) -> None:
    """Arguments of a table's columns: those of all calls' are there, and null is no value."""
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        arguments = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(arguments, Mapping) and None in arguments.values():
            wrong(
                f"{path}.tool_calls[{index}].function.arguments",
                "holds nulls of other calls' columns; write arguments as JSON text",
            )


def _check_weight(message: Mapping[str, Any], path: str, wrong: Wrong) -> None:
    if "weight" not in message:
        return
    weight = message["weight"]
    if message["role"] != "assistant":
        wrong(f"{path}.weight", f"got it of {message['role']!r}; only the assistant's have one")
    elif isinstance(weight, bool) or not isinstance(weight, int | float) or weight not in (0, 1):
        wrong(f"{path}.weight", f"got {_shown(weight)}; allowed are 0 and 1")


def _check_content(content: Any, path: str, wrong: Wrong) -> bool:
    """Whether it says anything, or is wrong anyway."""
    if content is None:
        return False
    if not isinstance(content, list):
        return _check_text(content, path, wrong)
    said = False
    for index, part in enumerate(content):
        place = f"{path}[{index}]"
        if isinstance(part, str):
            said |= _check_text(part, place, wrong)
            continue
        if not isinstance(part, Mapping):
            wrong(place, f"got {kind_of(part)}; allowed are parts of text")
            said = True
            continue
        kind = part.get("type")
        if kind not in _TEXT_PARTS:
            wrong(f"{place}.type", f"got {_shown(kind)}; allowed is 'text': only text trains here")
            said = True
        else:
            said |= _check_text(part.get("text"), f"{place}.text", wrong)
    return said


def _check_text(value: Any, path: str, wrong: Wrong) -> bool:
    """Whether there is any, or it is wrong anyway."""
    if not isinstance(value, str):
        wrong(path, f"got {kind_of(value)}; allowed is a text")
        return True
    if clean(value) != value:
        wrong(path, "holds NUL or half of a surrogate pair, which no tokenizer takes")
        return True
    return bool(value)


def _check_name(value: Any, path: str, wrong: Wrong) -> None:
    if _check_text(value, path, wrong) and isinstance(value, str) and len(value) > MOST_NAME_CHARS:
        wrong(path, f"got {len(value)} characters; allowed are {MOST_NAME_CHARS}")


def _check_call(call: Any, path: str, wrong: Wrong) -> None:
    call = _without_nulls(call) if isinstance(call, Mapping) else {}
    if not isinstance(call.get("function"), Mapping):
        wrong(f"{path}.function", "is required: an object with name and arguments")
        return
    function = _without_nulls(call["function"])
    if call.get("type", "function") != "function":
        wrong(f"{path}.type", f"got {_shown(call['type'])}; allowed is 'function'")
    if not function.get("name"):
        wrong(f"{path}.function.name", "is required")
    else:
        _check_name(function["name"], f"{path}.function.name", wrong)
    if "id" in call:
        _check_name(call["id"], f"{path}.id", wrong)
    _check_arguments(function.get("arguments", {}), f"{path}.function.arguments", wrong)


def _check_arguments(arguments: Any, path: str, wrong: Wrong) -> None:
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}", parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            wrong(path, f"is no JSON: {error}")
            return
        if not _is_finite(read):
            wrong(path, "holds a number beyond a double's; allowed are finite numbers")
        if not isinstance(read, dict):
            wrong(path, f"got {kind_of(read)} as JSON; allowed is an object")
        # Escapes too may be halves of a pair.
        _check_text(json.dumps(read, ensure_ascii=False), path, wrong)
    elif not isinstance(arguments, Mapping):
        wrong(path, f"got {kind_of(arguments)}; allowed are JSON text and an object")
    elif is_nested_deeper(arguments, MOST_NESTED):
        wrong(path, f"is nested more than {MOST_NESTED} levels deep")
    else:
        try:
            text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            wrong(path, f"cannot be JSON: {error}")
        else:
            _check_text(text, path, wrong)


def _tools(given: Any, wrong: Wrong) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        wrong("tools", f"got {kind_of(given)}; allowed is a list of tools")
        return []
    tools = []
    for index, each in enumerate(given):
        path = f"tools[{index}]"
        tool = _without_nulls(each) if isinstance(each, Mapping) else {}
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, Mapping):
            wrong(path, "allowed are objects of type 'function', with a function")
            continue
        if not isinstance(function.get("name"), str) or not function["name"]:
            wrong(f"{path}.function.name", "is required")
            continue
        _check_name(function["name"], f"{path}.function.name", wrong)
        parameters = function.get("parameters")
        if is_nested_deeper(parameters, MOST_NESTED):
            wrong(f"{path}.function.parameters", f"is nested more than {MOST_NESTED} levels deep")
        elif parameters is not None and not isinstance(parameters, Mapping):
            wrong(f"{path}.function.parameters", f"got {kind_of(parameters)}; allowed is an object")
        tools.append(tool)
    return tools


def _unpacked(value: Any) -> Any:
    """A list as it is, or as the JSON text that Parquet files hold."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return value


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): inner for key, inner in value.items() if inner is not None}


def _deeply_without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _deeply_without_nulls(inner) for key, inner in _without_nulls(value).items()}
    if isinstance(value, list):
        return [_deeply_without_nulls(inner) for inner in value]
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _is_finite(value: Any) -> bool:
    """Whether no number in it was too great to be read: 1e999."""
    if isinstance(value, float):
        return math.isfinite(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_is_finite, inner))


def _no_number(text: str) -> Any:
    raise ValueError(f"got {text}; allowed are finite numbers")
