"""A newcomer's questions each have one file that answers, and the file is about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.sources import written

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| (?P<question>.+\?) \| \[[^]]+\]\((?P<target>[^)]+)\) \|$", re.MULTILINE)
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
ANSWERS = {row["question"]: row["target"] for row in _ROW.finditer(PAGE)}
# What stands in the file that answers, and would not if the answer had moved elsewhere.
TOLD = {
    "What is the loss?": "def token_losses(",
    "What does RULER ask the judge?": "DEFAULT_RUBRIC = ",
    "Which states has a job, and what follows on what?": "def is_legal(",
    "How does a weight reach vLLM?": "reload_weights",
    "Where is a retry decided?": "retry_unavailable",
    "Where does a default live?": "default_value",
    "How do I add an environment?": "(Environment):",
    "How do I add an objective?": "### An objective\n\n1. ",
    "How do I add a field of an RPC?": "### A field of an RPC\n\n1. ",
    "How do I add a metric?": "### A metric\n\n1. ",
}


def test_the_ten_questions_are_answered() -> None:
    assert list(ANSWERS) == list(TOLD)


@pytest.mark.parametrize("question", TOLD)
def test_the_answer_is_one_file_that_has_it(question: str) -> None:
    path, _, _ = ANSWERS[question].partition("#")
    file = ROOT / path if path else ROOT / "CONTRIBUTING.md"
    assert file.is_file()
    assert TOLD[question] in file.read_text()


def code_named_by(page: str) -> list[str]:
    """The links of a page to code."""
    return re.findall(r"\]\(\.\./([\w/.-]+\.py)\)", (ROOT / "docs" / page).read_text())


@pytest.mark.parametrize("page", ["weights.md", "retries.md", "defaults.md"])
def test_a_page_that_answers_names_files_that_there_are(page: str) -> None:
    named = code_named_by(page)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).is_file()] == []


_REPEATS = re.compile(
    # The helpers; a factor or a power of two for the next pause; a factor of the caller's.
    r"\bretry_unavailable\(|\bBackoff\(|min\(2 \*|min\([^()\n]*\* 2\b"
    r"|\b2(?:\.0)? \*\* |\b(?:pause|delay|wait) \*= "
)


def test_every_module_that_repeats_with_growing_pauses_is_on_the_page_of_retries() -> None:
    found = {file for file, text in written("libs", "services").items() if _REPEATS.search(text)}
    assert len(found) >= 8
    assert sorted(found - set(code_named_by("retries.md"))) == []
