"""How many histories TRL's templates make of a conversation: the table of docs/templates.md."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from support.template_tokenizer import TemplateTokenizer, shipped

TURNS = 6
LOOK = pb.Tool(name="look", description="Looks.")
QUIET = {"enable_thinking": False}
COLUMNS: list[tuple[str, dict[str, Any], bool]] = [
    ("", {}, False),
    ("", QUIET, False),
    ("_training", QUIET, False),
    ("", {}, True),
    ("_training", {}, True),
]
"""What the name ends with, what the template is told, and whether replies have thoughts."""


def table() -> dict[str, list[str]]:
    """The cells by the template's name."""
    found = {}
    for line in Path("docs/templates.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 1 + len(COLUMNS) and cells[0].startswith("`"):
            found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[1:])
    return found


def names() -> set[str]:
    folder = files("trl").joinpath("chat_templates")
    return {path.name[:-6] for path in folder.iterdir() if path.name.endswith(".jinja")}


def test_the_table_names_every_template() -> None:
    assert set(table()) == {name.removesuffix("_training") for name in names()}


@pytest.mark.parametrize("name", sorted(table()))
def test_a_template_makes_as_many_histories_as_the_table_says(name: str) -> None:
    found = []
    for suffix, arguments, thoughts in COLUMNS:
        if name + suffix not in names():
            found.append("")
            continue
        renders = Renderer(TemplateTokenizer(shipped(name + suffix)))
        cells = [splits(renders, arguments, tools, thoughts) for tools in (False, True)]
        found.append(", ".join(cells))
    assert found == table()[name]


def splits(renders: Renderer, arguments: dict[str, Any], tools: bool, thoughts: bool) -> str:
    """Turns that began a new history; `no` where the template refuses the conversation."""
    call_format, told = (renders.call_format, [LOOK]) if tools else ("", [])
    messages = [pb.Message(role=pb.ROLE_USER, content="one?")]
    begun = 0
    for turn in range(TURNS):
        said = pb.Message(role=pb.ROLE_ASSISTANT, content="" if tools else f"answer {turn}")
        after = pb.Message(role=pb.ROLE_USER, content="and?")
        if thoughts:
            said.reasoning = "why"
        if tools:
            call = said.tool_calls.add(
                id=f"call{turn:05d}", name="look", arguments_json='{"at": 1}'
            )
            after = pb.Message(
                role=pb.ROLE_TOOL, content="seen", tool_call_id=call.id, name=call.name
            )
        messages += [said, after]
        try:
            renders.following(messages, told, [5], len(messages) - 1, call_format, arguments)
        except FailedPreconditionError:
            begun += 1
        except InvalidArgumentError:
            return "no"
    return str(begun)
