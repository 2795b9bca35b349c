"""What a model is told that makes tasks from tool descriptions, and how its answer is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from podium.environments.types import Tool

LEVELS = range(1, 6)
LEAST_CHARACTERS, MOST_CHARACTERS = 10, 4000
_MOST_SHOWN = 60
_SHOWN_CHARACTERS = 160


class AnswerError(Exception):
    """An answer of which nothing can be used."""


def schema(count: int) -> dict[str, Any]:
    """JSON Schema of an answer with `count` tasks."""
    return {
        "type": "object",
        "properties": {
            "scenarios": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "task": {"type": "string"},
                        "difficulty": {"type": "integer", "enum": list(LEVELS)},
                    },
                    "required": ["task", "difficulty"],
                    "additionalProperties": False,
                },
                "minItems": count,
                "maxItems": count,
            }
        },
        "required": ["scenarios"],
        "additionalProperties": False,
    }


def messages(
    tools: Sequence[Tool],
    resources: Sequence[Mapping[str, str]],
    instructions: str,
    wanted: Counter[int],
    known: Sequence[str],
) -> list[dict[str, str]]:
    """The conversation that asks for `wanted` tasks by difficulty, other than the `known` ones."""
    count = wanted.total()
    spread = ", ".join(
        f"{wanted[level]} of difficulty {level}" for level in LEVELS if wanted[level]
    )
    described = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in tools
    ]
    parts = [
        f"Write {count} tasks that a person could give to an assistant which has the tools below.",
        "Tools:\n" + json.dumps(described, indent=1, ensure_ascii=False),
    ]
    if resources:
        parts.append(
            "Resources:\n" + json.dumps(list(map(dict, resources)), indent=1, ensure_ascii=False)
        )
    parts.append(
        "Each task\n"
        "- can be done with these tools alone, starting from what they hold or from nothing;\n"
        "- is something that somebody really wants, in their own words, with every name and "
        "number that is needed;\n"
        "- says what is wanted, never which tools to use;\n"
        "- stands by itself, and differs from all others in more than its names.\n"
        f"Difficulty goes from 1, one call, to 5, many calls that build on each other. Write "
        f"{spread}. Over all tasks, use all tools."
    )
    if known:
        shown = "\n".join(f"- {task[:_SHOWN_CHARACTERS]}" for task in known[-_MOST_SHOWN:])
        parts.append(f"These are there already; write others:\n{shown}")
    if instructions:
        parts.append(instructions)
    parts.append(
        'Answer with a JSON object: {"scenarios": [{"task": "…", "difficulty": 1}, …]}, '
        f"with exactly {count} entries."
    )
    return [
        {"role": "system", "content": "You write tasks to train and test assistants with."},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def parse(text: str) -> tuple[list[tuple[str, int]], Counter[str]]:
    """The tasks of an answer with their difficulty, and why others cannot be used.

    Raises:
        AnswerError: it is not the object that was asked for.
    """
    try:
        answer = json.loads(_object_in(text))
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"it is no JSON: {error}") from None
    entries = answer.get("scenarios") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise AnswerError('it has no list "scenarios"')
    found: list[tuple[str, int]] = []
    refused: Counter[str] = Counter()
    for entry in entries:
        task = entry.get("task") if isinstance(entry, dict) else None
        level = entry.get("difficulty") if isinstance(entry, dict) else None
        if not isinstance(task, str) or not (
            LEAST_CHARACTERS <= len(task.strip()) <= MOST_CHARACTERS
        ):
            refused["task"] += 1
        elif isinstance(level, bool) or not isinstance(level, int) or level not in LEVELS:
            refused["difficulty"] += 1
        else:
            found.append((task.strip(), level))
    return found, refused


def _object_in(text: str) -> str:
    """Models without a response format wrap their JSON in words or a code block."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text
