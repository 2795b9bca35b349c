"""Between the SDK's dataclasses and the contract's messages."""

from __future__ import annotations

import json
import marshal
import math
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value

from podium.core.outside import (
    MOST_NESTED,
    clean,
    clean_json,
    is_nested_deeper,
    name_of,
    plain_of,
    struct_of,
)
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.types import Message, Observation, Scenario, Tool, ToolCall
from podium.types.v1 import trajectory_pb2 as types_pb

_ROLES: dict[str, types_pb.Role.ValueType] = {
    "system": types_pb.ROLE_SYSTEM,
    "user": types_pb.ROLE_USER,
    "assistant": types_pb.ROLE_ASSISTANT,
    "tool": types_pb.ROLE_TOOL,
}
_EXACT = 2**53
"""Whole numbers up to here are doubles too."""
_ROLE_NAMES: dict[int, Any] = {number: name for name, number in _ROLES.items()}


def struct(values: Mapping[str, Any]) -> Struct:
    """JSON values as a Struct that every service can read; see `struct_of`.

    Raises:
        TypeError, ValueError: a value that JSON does not have.
    """
    result = Struct()
    try:
        _fill(result, values, 1)
    except _UncommonError:
        return _struct_of_text(values)
    return result


class _UncommonError(Exception):
    """A value that is to be made plain first, or refused."""


def _fill(result: Struct, values: Mapping[str, Any], depth: int) -> None:
    """Writes plain JSON values as they are: nearly all states are such, and come every turn."""
    if depth > MOST_NESTED:
        raise _UncommonError
    fields = result.fields
    for key, value in values.items():
        if type(key) is not str or "\0" in key:
            raise _UncommonError
        try:
            _set(fields[key], value, depth)
        except UnicodeEncodeError:
            raise _UncommonError from None


def _set(result: Value, value: Any, depth: int) -> None:
    # By their very types: what is derived from them may be written in its own way.
    kind = type(value)
    if kind is str:
        if "\0" in value:
            raise _UncommonError
        result.string_value = value
    elif kind is bool:
        result.bool_value = value
    elif (kind is int and abs(value) <= _EXACT) or (kind is float and math.isfinite(value)):
        result.number_value = value
    elif value is None:
        result.null_value = NULL_VALUE
    elif kind is list or kind is tuple:
        if depth >= MOST_NESTED:
            raise _UncommonError
        result.list_value.SetInParent()
        add = result.list_value.values.add
        for inner in value:
            _set(add(), inner, depth + 1)
    elif kind is dict:
        result.struct_value.SetInParent()
        _fill(result.struct_value, value, depth + 1)
    else:
        raise _UncommonError


def _struct_of_text(values: Mapping[str, Any]) -> Struct:
    # Through text, so that NaN, sets and objects are refused and tuples become lists.
    text = clean_json(json.dumps(dict(values), allow_nan=False))
    plain = json.loads(text)
    # Counting first: almost none has so many, and then none is nested so deep.
    if text.count("{") + text.count("[") > MOST_NESTED and is_nested_deeper(plain, MOST_NESTED):
        return struct_of(plain)
    result = Struct()
    try:
        json_format.ParseDict(plain, result)
    except (json_format.ParseError, OverflowError):
        return struct_of(plain)
    return result


def unstruct(values: Struct) -> dict[str, Any]:
    """A Struct as JSON values; whole numbers as int."""
    return {key: _plain(value) for key, value in plain_of(values).items()}


def message_to_pb(message: Message) -> types_pb.Message:
    """An SDK message as the contract's."""
    return types_pb.Message(
        role=_ROLES[message.role],
        content=clean(message.content),
        tool_calls=[
            types_pb.ToolCall(
                id=name_of(call.id),
                name=name_of(call.name),
                arguments_json=clean_json(call.arguments_json),
            )
            for call in message.tool_calls
        ],
        tool_call_id=name_of(message.tool_call_id),
        name=clean(message.name),
        malformed_calls=[clean(why) for why in message.malformed_calls],
        conversation=clean(message.conversation),
        begins_history=message.begins_history,
    )


def message_from_pb(message: types_pb.Message) -> Message:
    """The contract's message as the SDK's."""
    return Message(
        role=_ROLE_NAMES.get(message.role, "user"),
        content=message.content,
        tool_calls=tuple(
            ToolCall(call.id, call.name, call.arguments_json) for call in message.tool_calls
        ),
        tool_call_id=message.tool_call_id,
        name=message.name,
        malformed_calls=tuple(message.malformed_calls),
        conversation=message.conversation,
        begins_history=message.begins_history,
    )


def scenario_to_pb(scenario: Scenario, split: str) -> types_pb.Scenario:
    """An SDK scenario as the contract's."""
    return types_pb.Scenario(id=clean(scenario.id), split=split, data=struct(scenario.data))


def scenario_from_pb(scenario: types_pb.Scenario) -> Scenario:
    """The contract's scenario as the SDK's."""
    return Scenario(scenario.id, unstruct(scenario.data), scenario.split)


class ToolsOnOffer:
    """Tools as the contract's. Most environments offer the same ones every turn: these are made
    once an episode."""

    def __init__(self) -> None:
        """None yet."""
        self._seen = b""
        self._made: list[types_pb.Tool] = []

    def to_pb(self, tools: Sequence[Tool]) -> list[types_pb.Tool]:
        """An observation's tools; the messages are not to be changed.

        Raises:
            TypeError, ValueError: a value that JSON does not have.
        """
        try:
            # Tells 1 from 1.0 and True, and takes no notice of which objects they are, so that
            # schemas may be changed in place. The second version has no references.
            seen = marshal.dumps([(t.name, t.description, t.parameters) for t in tools], 2)
        except ValueError:
            # Something that is derived from a plain type, or none at all.
            return [tool_to_pb(tool) for tool in tools]
        if seen != self._seen:
            self._made = [tool_to_pb(tool) for tool in tools]
            self._seen = seen
        return self._made


def observation_to_pb(
    observation: Observation, on_offer: ToolsOnOffer | None = None
) -> pb.Observation:
    """An SDK observation as the contract's. `on_offer` keeps the tools of the turn before."""
    return pb.Observation(
        messages=[message_to_pb(message) for message in observation.messages],
        tools=(on_offer or ToolsOnOffer()).to_pb(observation.tools),
        state=struct(observation.state),
    )


def observation_from_pb(observation: pb.Observation) -> Observation:
    """The contract's observation as the SDK's."""
    return Observation(
        messages=tuple(message_from_pb(message) for message in observation.messages),
        tools=tuple(
            Tool(tool.name, tool.description, unstruct(tool.parameters))
            for tool in observation.tools
        ),
        state=unstruct(observation.state),
    )


def tool_to_pb(tool: Tool) -> types_pb.Tool:
    """An SDK tool as the contract's."""
    return types_pb.Tool(
        name=name_of(tool.name),
        description=clean(tool.description),
        parameters=struct(tool.parameters),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
