"""Rows in the forms of other trainers, and the command that makes conversations of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

_SHAREGPT = "ShareGPT"
_ROLES = '{human: "user", gpt: "assistant"}'

_FORMS = (
    (
        ("conversations",),
        _SHAREGPT,
        f"{{messages: [.conversations[] | {{role: ({_ROLES}[.from] // .from), content: .value}}]}}",
    ),
    (
        ("instruction", "output"),
        "Alpaca",
        '{messages: [{role: "user", content: ([.instruction, .input] | map(select((. // "") != ""))'
        ' | join("\\n\\n"))}, {role: "assistant", content: .output}]}',
    ),
    (
        ("prompt", "completion"),
        "a prompt and its completion",
        '{messages: [{role: "user", content: .prompt}, {role: "assistant", content: .completion}]}',
    ),
    (
        ("prompt", "chosen", "rejected"),
        "preferences, of which the chosen answer alone can be learnt here",
        '{messages: [{role: "user", content: .prompt}, {role: "assistant", content: .chosen}]}',
    ),
)


def how_to_convert(row: Mapping[str, Any], file: str) -> str:
    """One sentence for the form that a row of a file of JSON lines has.

    Empty where it has messages, or is unknown.
    """
    if row.get("messages") is not None:
        return ""
    for keys, form, program in _FORMS:
        if all(_is_of(form, row.get(key)) for key in keys):
            return f"the form is {form}; `{by_jq(program, file)}` makes messages of it"
    return ""


def by_jq(program: str, file: str) -> str:
    """The shell's command that writes what jq makes of a file beside it, and not over it."""
    made = "lines.jsonl" if file != "lines.jsonl" else "lines.new.jsonl"
    # What begins with a dash is an option to jq.
    read = f"./{file}" if file.startswith("-") else file
    return f"jq -c {shlex.quote(program)} {shlex.quote(read)} > {made}"


def _is_of(form: str, value: Any) -> bool:
    if form != _SHAREGPT:
        return isinstance(value, str)
    turns = value if isinstance(value, list) else []
    return bool(turns) and all(isinstance(turn, Mapping) and "from" in turn for turn in turns)
