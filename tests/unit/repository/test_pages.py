"""A reader finds every page, README stays one, and prose is as wide as an editor's window."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from podium.environment.v1 import environment_service_pb2
from podium.inference.v1 import inference_service_pb2
from podium.jobs.v1 import evaluation_service_pb2, job_service_pb2, session_service_pb2
from podium.judge.v1 import judge_service_pb2
from podium.registry.v1 import registry_service_pb2
from podium.rollout.v1 import rollout_service_pb2
from podium.trainer.v1 import trainer_service_pb2
from support.document_commands import python
from support.gathered import wrong_in

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
INDEX = (DOCS / "README.md").read_text()
# These folders have an index of their own, which other tests hold whole.
OWN_INDEX = ("decisions", "runbooks")
MAX_README_LINES = 150
MAX_COLUMNS = 120
PROSE = [f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")]
PROSE += sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("docs", "bench", "charts", "examples", "libs", "services")
    for path in (ROOT / folder).rglob("*.md")
    if "node_modules" not in path.parts
)
_ENTRY = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\): \S.*$", re.MULTILINE)
_SERVICES = (
    environment_service_pb2,
    inference_service_pb2,
    job_service_pb2,
    session_service_pb2,
    evaluation_service_pb2,
    judge_service_pb2,
    registry_service_pb2,
    rollout_service_pb2,
    trainer_service_pb2,
)


def pages() -> set[str]:
    """Every page of docs/ that the index must have, relative to it."""
    found = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")} - {Path("README.md")}
    return {
        path.as_posix()
        for path in found
        if path.parts[0] not in OWN_INDEX or path.name == "README.md"
    }


def test_every_page_is_in_the_index_with_what_it_is() -> None:
    listed = {target for _, target in _ENTRY.findall(INDEX)}
    assert len(pages()) > 20
    assert sorted(pages() - listed) == []
    assert sorted(listed - pages()) == []


def test_the_index_calls_learning_pages_by_their_titles() -> None:
    for name in ("first-task", "own-agent", "ruler-only"):
        title = (DOCS / f"{name}.md").read_text().partition("\n")[0].removeprefix("# ")
        assert (title, f"{name}.md") in _ENTRY.findall(INDEX)


def test_the_readme_is_short_and_leads_on() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MAX_README_LINES
    for needed in ("docs/README.md", "docs/images/", "make demo", "make test"):
        assert needed in text
    assert text.index("make demo") < text.index("## Using it")


def test_the_agents_page_prints_the_examples_code_as_it_is() -> None:
    blocks = python((DOCS / "own-agent.md").read_text())
    for beginning, file in (("async with", "openai_agent"), ("async def", "train_openai")):
        (block,) = (block for block in blocks if block.startswith(beginning))
        source = (ROOT / "examples" / f"{file}.py").read_text()
        assert any(textwrap.indent(block, " " * indent) in source for indent in (0, 4)), beginning


def too_wide(text: str) -> Iterator[str]:
    """Lines of prose beyond the width: neither code nor a table, nor one link that has no seam."""
    listed, fenced, after_blank = False, False, True
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if re.match(r"\s*([-*]|\d+\.) ", line):
            listed = True
        elif line and not line.startswith(" ") and after_blank:
            listed = False
        after_blank = not line.strip()
        code = fenced or (line.startswith("    ") and not listed)
        whole = re.fullmatch(r"- \[[^\]]*(?:\[[^\]]*\])*[^\]]*\]\(\S+\)", line)
        if len(line) > MAX_COLUMNS and not (code or whole or line.startswith(("|", "#"))):
            yield line


def test_prose_is_at_most_120_characters_wide() -> None:
    wrong = wrong_in(PROSE, too_wide)
    assert not wrong, wrong


def test_the_width_is_of_prose_alone() -> None:
    long = "word " * 30
    apart = f"    {long}\n\n| {long} |\n```\n{long}\n```\n- [{long}](a.md)\n\nAnd:\n\n"
    assert list(too_wide(apart)) == []
    assert list(too_wide(f"{apart}{long}\n\n- a\n\n    {long}\n")) == [long, f"    {long}"]


def test_the_page_of_the_api_has_every_method_and_no_other() -> None:
    page = (DOCS / "reference/api.md").read_text()
    rows = re.findall(r"^\| \[`([\w.]+)`\]\(\S+\) \| (.+?) \|", page, re.MULTILINE)
    told = {name: re.findall(r"`(\w+)`", methods) for name, methods in rows}
    there = {
        service.full_name: [method.name for method in service.methods]
        for module in _SERVICES
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert {name: sorted(methods) for name, methods in told.items()} == {
        name: sorted(methods) for name, methods in there.items()
    }
