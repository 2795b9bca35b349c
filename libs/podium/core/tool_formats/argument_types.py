"""What a tool's schema says of an argument that a format writes as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podium.core.outside import plain_of
from podium.core.tool_formats.reading import UnreadableError
from podium.core.tool_formats.values import literal_at, skip
from podium.types.v1 import trajectory_pb2 as pb

_ANY = "any"
_CHOICES = ("anyOf", "oneOf", "allOf")


class Types:
    """What the tools say of their arguments, for formats that write all of them as text."""

    def __init__(self, tools: Sequence[pb.Tool] = ()) -> None:
        """Schemas are read when a call asks for them."""
        self._tools = {tool.name: tool for tool in tools}

    def value(self, name: str, parameter: str, text: str) -> Any:
        """What `text` stands for; itself where no other type of the parameter fits.

        What no schema describes is what it looks like, as JSON or Python has it.
        """
        types = self._types(name, parameter)
        if types == {"string"}:
            return text
        try:
            found, end = literal_at(text, skip(text, 0))
        except UnreadableError:
            return text
        if text[end:].strip():
            return text
        if "boolean" in types and not types & {"integer", "number", _ANY} and found in (0, 1):
            return bool(found)
        if "string" in types and not _fits(found, types):
            return text
        return found

    def _types(self, name: str, parameter: str) -> set[str]:
        tool = self._tools.get(name)
        if tool is None or "properties" not in tool.parameters.fields:
            return {_ANY}
        described = tool.parameters.fields["properties"].struct_value.fields
        if parameter not in described:
            return {_ANY}
        return _types_in(plain_of(described[parameter].struct_value)) or {_ANY}


def _types_in(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return {_ANY}
    found = set()
    declared = schema.get("type")
    for each in declared if isinstance(declared, list) else [declared]:
        if isinstance(each, str):
            found.add(each)
    choices = schema.get("enum")
    if not found and isinstance(choices, list):
        found |= {_TYPES.get(type(each), _ANY) for each in choices}
    for key in _CHOICES:
        options = schema.get(key)
        for option in options if isinstance(options, list) else ():
            found |= _types_in(option) or {_ANY}
    return found


_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _fits(value: Any, types: set[str]) -> bool:
    kind = _TYPES.get(type(value), _ANY)
    return kind in types or _ANY in types or (kind == "integer" and "number" in types)
