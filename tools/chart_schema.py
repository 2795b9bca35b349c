"""Writes charts/podium/values.schema.json, and the chart's table of values, from values.yaml.

usage: python tools/chart_schema.py [--check]

A key's type is that of its default; `# -- text` above it describes it, and `# @schema {...}` adds
JSON Schema. No key is allowed that values.yaml does not have, and those must be there whose default
is not empty: null takes them away, and `--reuse-values` brings none that an older chart lacked. But
for what is off by default, and off as well without any values, and what says `mayBeAbsent`, of
which the templates tell when it is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts" / "podium"
_MAY_BE_ABSENT = "mayBeAbsent"
TABLE = ("<!-- values: written by `make chart-schema` -->", "<!-- /values -->")

_NAME = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$"}
_QUANTITY = {
    "anyOf": [{"type": "string", "pattern": r"^[0-9.]+([EPTGMk]i?|m)?$"}, {"type": "number"}]
}
_QUANTITIES = {"type": "object", "additionalProperties": _QUANTITY}
# Shapes that values.yaml refers to as #/$defs/...; `pod`, `pool` and `trainerPool` are made of
# podDefaults, poolDefaults and trainerPoolDefaults.
DEFINITIONS: dict[str, Any] = {
    "resources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "requests": _QUANTITIES,
            "limits": {**_QUANTITIES, "required": ["memory"]},
            "claims": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["limits"],
    },
    "someResources": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES},
    },
    "settings": {
        "type": "object",
        "propertyNames": {"pattern": "^[A-Z][A-Z0-9_]*$"},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    "env": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
            "required": ["name"],
        },
    },
    "project": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "maxActiveJobs": {
                "type": "integer",
                "minimum": 0,
                "description": "Jobs that run at once.",
            },
            "maxGpus": {
                "type": "integer",
                "minimum": 0,
                "description": "GPUs of the trainers of those jobs.",
            },
            "maxGpuHours": {
                "type": "number",
                "minimum": 0,
                "description": "GPU hours of its jobs in a calendar month (UTC): then they pause.",
            },
            "maxJudgeCost": {
                "type": "number",
                "minimum": 0,
                "description": "What its jobs' judges cost in such a month: then they pause.",
            },
            "maxTotalGpuHours": {
                "type": "number",
                "minimum": 0,
                "description": "GPU hours of its jobs in all time: then they pause, for good.",
            },
            "maxTotalJudgeCost": {
                "type": "number",
                "minimum": 0,
                "description": "What its jobs' judges cost in all time: then they pause, for good.",
            },
            "maxPoolShare": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 1,
                "description": "Of the episodes that a pool runs at once, and the project's"
                " weight against others there.",
            },
            "maxJudgeTokens": {
                "type": "integer",
                "minimum": 0,
                "description": "Tokens that the judge models of its jobs read and write in a"
                " calendar month, UTC.",
            },
        },
    },
    "autoscaling": {
        "type": "object",
        "additionalProperties": False,
        "required": ["enabled", "minReplicas", "maxReplicas", "targetCPUUtilizationPercentage"],
        "properties": {
            "enabled": {"type": "boolean"},
            "minReplicas": {"type": "integer", "minimum": 1},
            "maxReplicas": {"type": "integer", "minimum": 1},
            "targetCPUUtilizationPercentage": {"type": "integer", "minimum": 1, "maximum": 100},
        },
    },
}


class _Comments:
    """The comments of a YAML file, by the line of the key below them."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()

    def above(self, line: int) -> tuple[str, dict[str, Any]]:
        """Description and schema of the key on a line (from 0)."""
        first = line
        while first and self._lines[first - 1].lstrip().startswith("#"):
            first -= 1
        words: list[str] = []
        extra: dict[str, Any] = {}
        for raw in self._lines[first:line]:
            comment = raw.strip().removeprefix("#").strip()
            if comment.startswith("@schema"):
                extra |= json.loads(comment.removeprefix("@schema"))
            else:
                words.append(comment.removeprefix("-- "))
        return " ".join(words).strip(), extra


def _root(text: str) -> yaml.Node:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None, "values.yaml holds nothing"
    return root


def _schema_of(node: yaml.Node, comments: _Comments) -> dict[str, Any]:
    if isinstance(node, yaml.MappingNode):
        properties = {}
        for key, value in node.value:
            description, extra = comments.above(key.start_mark.line)
            extra.pop(_MAY_BE_ABSENT, None)
            if "$ref" in extra:
                properties[key.value] = {"description": description, **extra}
                continue
            inner = _schema_of(value, comments)
            if "additionalProperties" in extra:
                inner.pop("properties", None)
            properties[key.value] = {"description": description, **inner, **extra}
        return {"type": "object", "additionalProperties": False, "properties": properties}
    if isinstance(node, yaml.SequenceNode):
        return {"type": "array"}
    kind = node.tag.rpartition(":")[2]
    return {"type": {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}[kind]}


def _is_off(node: yaml.Node) -> bool:
    """Whether a default is a feature that is off, or several of them and nothing else."""
    if not isinstance(node, yaml.MappingNode) or not node.value:
        return False
    switches = [value.value for key, value in node.value if key.value == "enabled"]
    return switches == ["false"] or all(_is_off(value) for _, value in node.value)


def _with_required(made: dict[str, Any], node: yaml.Node, comments: _Comments) -> dict[str, Any]:
    """A schema of `_schema_of` that asks for every key whose default is not empty, nor off."""
    if not isinstance(node, yaml.MappingNode) or "properties" not in made:
        return made
    defaults = {key.value: value for key, value in node.value}
    free = {
        key.value
        for key, value in node.value
        if value.value in ("", [])
        or _is_off(value)
        or comments.above(key.start_mark.line)[1].get(_MAY_BE_ABSENT)
    }
    return {
        **made,
        "properties": {
            name: _with_required(inner, defaults[name], comments)
            for name, inner in made["properties"].items()
        },
        "required": [name for name in defaults if name not in free],
    }


def schema() -> dict[str, Any]:
    """The whole schema."""
    text = (CHART / "values.yaml").read_text()
    # Of pools and pods, which take the same keys, each may leave out any.
    properties = _schema_of(_root(text), _Comments(text))["properties"]
    made = _with_required(_schema_of(_root(text), _Comments(text)), _root(text), _Comments(text))
    pod = {k: v for k, v in properties["podDefaults"].items() if k != "description"}
    pool = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {"description": "The pool's name, unique.", **_NAME},
            **properties["poolDefaults"]["properties"],
        },
    }
    trainer_pool = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "baseModel"],
        "properties": {
            "name": {"description": "The trainer pool's name, unique.", **_NAME},
            "baseModel": {
                "description": "Base model, as `model` of an inference pool has it.",
                "type": "string",
                "minLength": 1,
            },
            **properties["trainerPoolDefaults"]["properties"],
        },
    }
    # Charts that have this one as a dependency may set it.
    made["properties"]["global"] = {"type": "object"}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the Podium chart",
        **made,
        "$defs": {**DEFINITIONS, "pod": pod, "pool": pool, "trainerPool": trainer_pool},
    }


def _rows(node: yaml.Node, comments: _Comments, path: str = "") -> Iterator[str]:
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name = f"{path}{key.value}"
        description, extra = comments.above(key.start_mark.line)
        extra.pop(_MAY_BE_ABSENT, None)
        if isinstance(value, yaml.MappingNode) and value.value and not extra:
            yield from _rows(value, comments, f"{name}.")
            continue
        default = json.dumps(yaml.safe_load(yaml.serialize(value)))
        shown = "" if default in ('""', "{}", "[]") else f"`{default}`"
        yield f"| `{name}` | {shown} | {description} |".replace("|  |", "| |")


def table() -> str:
    """Every value, its default and what it does, in Markdown."""
    text = (CHART / "values.yaml").read_text()
    rows = _rows(_root(text), _Comments(text))
    return "\n".join(["| value | default | |", "|---|---|---|", *rows])


def readme(old: str) -> str:
    """The chart's README with the table as it is now."""
    begin, end = map(re.escape, TABLE)
    body = f"{TABLE[0]}\n{table()}\n{TABLE[1]}"
    return re.sub(f"{begin}.*{end}", lambda _: body, old, flags=re.DOTALL)


def main() -> None:
    """Writes both files, or with --check exits with 1 when one is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    page = CHART / "README.md"
    files = {
        CHART / "values.schema.json": json.dumps(schema(), indent=1, ensure_ascii=False) + "\n",
        page: readme(page.read_text()),
    }
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if stale and check:
        sys.exit(f"stale: {', '.join(path.name for path in stale)}; run `make chart-schema`")
    for path in stale:
        path.write_text(files[path])


if __name__ == "__main__":
    main()
