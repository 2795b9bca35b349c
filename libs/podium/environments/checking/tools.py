"""Whether tools on offer are such as models can be told of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podium.environments.checking.findings import Finding, error, warning
from podium.environments.types import Tool

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


def tool_findings(tools: Sequence[Tool]) -> Iterator[Finding]:
    """What is wrong with tools that are on offer at once."""
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            yield error("tools", f"{count} tools on offer at once are called {name!r}")
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            yield error(
                "tools",
                f"a tool is called {tool.name!r}; allowed are 1 to 64 letters, digits, _ and -",
            )
        if not tool.description:
            yield warning("tools", f"the tool {tool.name!r} has no description for the model")
        for wrong in _schema_faults(tool.parameters):
            yield error(
                "tools",
                f"the parameters of the tool {tool.name!r} are no JSON Schema of an object: "
                f"{wrong}",
                'For example {"type": "object", "properties": {"query": {"type": "string"}}, '
                '"required": ["query"]}',
            )


def _schema_faults(schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    if not schema and not at:
        # A tool without arguments.
        return
    kind = schema.get("type")
    if not at and kind != "object":
        yield f"type is {kind!r}, not 'object'"
        return
    kinds = kind if isinstance(kind, list) else [kind]
    unknown = [each for each in kinds if each is not None and each not in _TYPES]
    if unknown:
        yield f"{at or 'type'} is {unknown[0]!r}; allowed are {', '.join(_TYPES)}"
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        yield f"properties{_of(at)} is no object"
        return
    for name, each in properties.items():
        place = f"{at}.{name}" if at else str(name)
        if isinstance(each, bool):
            continue
        if not isinstance(each, Mapping):
            yield f"{place} is {each!r}, not an object such as {{'type': 'string'}}"
        else:
            yield from _schema_faults(each, place)
    required = schema.get("required", [])
    if not isinstance(required, list):
        yield f"required{_of(at)} is no list"
        return
    for name in required:
        if name not in properties:
            yield f"required{_of(at)} names {name!r}, which properties lacks"


def _of(at: str) -> str:
    return f" of {at}" if at else ""
