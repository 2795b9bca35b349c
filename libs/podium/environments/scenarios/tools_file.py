"""Tools from a JSON file, as OpenAI's API, MCP or Podium writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.types import Tool


def read_tools(path: Path) -> list[Tool]:
    """The tools of a JSON list, or of an object that has it as `tools`.

    An entry has `name`, `description` and its JSON Schema as `parameters`, `inputSchema` or
    `input_schema`, perhaps all under `function`.

    Raises:
        InvalidArgumentError: the file cannot be read; or names every wrong entry.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is not UTF-8 from byte {error.start + 1} on") from None
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"is no JSON: {error}") from None
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    if isinstance(entries, dict):
        # As MCP's tools/list answers, and as requests have them.
        entries = entries.get("tools")
    if not isinstance(entries, list) or not entries:
        raise _wrong(path, "is no JSON list of tools")
    tools: dict[str, Tool] = {}
    wrong = []
    for place, entry in enumerate(entries):
        try:
            tool = _tool(entry)
            if tool.name in tools:
                raise ValueError(f"name: got {tool.name!r}, which an earlier one has")
            tools[tool.name] = tool
        except ValueError as error:
            wrong.append(Violation(f"{path.name}[{place}]", str(error)))
    if wrong:
        raise InvalidArgumentError(violations=wrong)
    return [*tools.values()]


def _wrong(path: Path, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation(path.name, text)])


def _no_number(text: str) -> Any:
    raise ValueError(f"got {text}; allowed are finite numbers")


def _tool(entry: Any) -> Tool:
    if isinstance(entry, dict) and isinstance(entry.get("function"), dict):
        entry = entry["function"]
    if not isinstance(entry, dict):
        raise ValueError(f"got {entry!r}; allowed are objects")
    name, description = entry.get("name"), entry.get("description") or ""
    schema: Any = next((entry[key] for key in _SCHEMAS if entry.get(key) is not None), {})
    for field, value, kind in (
        ("name", name, str),
        ("description", description, str),
        ("parameters", schema, dict),
    ):
        if not isinstance(value, kind) or (field == "name" and not value):
            raise ValueError(f"{field}: got {value!r}; allowed are {_ALLOWED[field]}")
    return Tool(str(name), str(description), dict(schema))


_SCHEMAS = ("parameters", "inputSchema", "input_schema")
_ALLOWED = {"name": "names", "description": "texts", "parameters": "JSON Schemas"}
