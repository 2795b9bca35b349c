"""Tools from a JSON file, as OpenAI's API, MCP or Podium writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.types import Tool


def read_tools(path: Path) -> list[Tool]:
    """The tools of a JSON list.

    An entry has `name`, `description` and its JSON Schema as `parameters` or `inputSchema`,
    perhaps all under `function`.

    Raises:
        InvalidArgumentError: names every wrong entry.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            violations=[Violation(path.name, f"is no JSON: {error}")]
        ) from None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgumentError(violations=[Violation(path.name, "is no JSON list of tools")])
    tools, wrong = [], []
    for place, entry in enumerate(entries):
        try:
            tools.append(_tool(entry))
        except ValueError as error:
            wrong.append(Violation(f"{path.name}[{place}]", str(error)))
    if wrong:
        raise InvalidArgumentError(violations=wrong)
    return tools


def _tool(entry: Any) -> Tool:
    if isinstance(entry, dict) and isinstance(entry.get("function"), dict):
        entry = entry["function"]
    if not isinstance(entry, dict):
        raise ValueError(f"got {entry!r}; allowed are objects")
    name, description = entry.get("name"), entry.get("description") or ""
    schema: Any = entry.get("parameters", entry.get("inputSchema", {}))
    for field, value, kind in (
        ("name", name, str),
        ("description", description, str),
        ("parameters", schema, dict),
    ):
        if not isinstance(value, kind) or (field == "name" and not value):
            raise ValueError(f"{field}: got {value!r}; allowed are {_ALLOWED[field]}")
    return Tool(str(name), str(description), dict(schema))


_ALLOWED = {"name": "names", "description": "texts", "parameters": "JSON Schemas"}
