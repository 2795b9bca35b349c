"""One word a thing and one thing a word, as docs/glossary.md has it: names in code, not prose."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from support.sources import written

FORBIDDEN = {
    "told": "what is said or called: events, attributes, on_…, report",
    "untold": "what is kept back: withheld",
    "sibling": "peer, see `pool peers`",
    "siblings": "peers, see `pool peers`",
}
"""A word that no name may hold, and what to say instead."""

NO_TURN_HERE = (
    "services/controller/podium_controller/pools",
    "services/controller/podium_controller/scheduling",
    "services/judge",
    "services/rollout/podium_rollout/adapters",
    "services/tracking/podium_tracking/supervisor.py",
    "services/trainer/podium_trainer/computing.py",
    "services/trainer/podium_trainer/worker.py",
    "libs/podium/kit",
)
"""Where a `turn` could only be a place in a queue; it is a message of the policy in an episode."""
TURN_IN_AN_EPISODE = {"libs/podium/kit/telemetry/attributes.py"}

SAME = {
    "Config": "the options of one environment, by the same name in each",
    "Settings": "what each service reads from its environment variables",
    "Database": "the kit's transactions, and the controller's with its tables",
    "UsageBook": "a port of the controller, and what implements it",
    "Environments": "the SDK's, the ports of two services, and what implements one",
    "Evaluations": "the SDK's, and the console's list of the same",
    "JobRun": "a job's run, as the SDK follows it and as the controller does it",
    "Jobs": "the SDK's, and what two of its users need of it",
    "Judge": "the SDK's client of the service, the controller's port to it, and a judge in it",
    "JudgeModel": "the job file's part, and the port that it becomes",
    "Sessions": "client and server of a session: the SDK's service, and an environment's server",
    "Session": "an environment's episode and a trainer's open job: both protocols call it so",
    "Policy": "the glossary's, as the rollout service samples it and as the trainer trains it",
    "Rollout": "an attempt in the client's own agent, and the controller's port to the service",
    "History": "the glossary's, as the client gives it and as the rollout service records it",
    "Score": "the public one of an environment, and the judge's of an attempt",
    "Usage": "what one chat asked and cost, and the judge's sum of them",
    "Finding": "of `podium doctor`, `podium env check` and the coach: each what a check found",
    "Row": "of a data set, and of a batch",
    "Question": "of two built-in tasks' data sets",
    "RandomAgent": "of two built-in tasks",
    "Guesser": "agents of one task, and of `podium env check`",
    "Episode": "of the rollout service, and of the tutorial's environment, whose name users read",
}
"""Names that several public classes have, and why that is right."""


def modules() -> dict[str, str]:
    return written("libs", "services", "tools")


def words(name: str) -> list[str]:
    return [each.lower() for each in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Classes, functions, parameters, attributes of objects, and what a module or class names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        if isinstance(node, ast.Module | ast.ClassDef):
            for each in node.body:
                targets = each.targets if isinstance(each, ast.Assign) else []
                if isinstance(each, ast.AnnAssign):
                    targets = [each.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        yield target.lineno, target.id


def found(text: str, *forbidden: str) -> list[str]:
    # To parse everything would take seconds: what is defined has one of these signs after it, and
    # one of those before it.
    name = rf"\w*({'|'.join(forbidden)})\w*\s*[:=,()\[]"
    if not re.search(name.removeprefix(r"\w*"), text, re.IGNORECASE) or not re.search(
        rf"(?:\b(?:def|class|lambda)\s+|[.(,*=;:]\s*|^\s*){name}", text, re.I | re.M
    ):
        return []
    return [
        f"{line} {name}"
        for line, name in definitions(ast.parse(text))
        if not set(words(name)).isdisjoint(forbidden)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "class ToldCalls: pass",
        "def _told(): pass",
        "async def f(*, told=None): pass",
        "UNTOLD = ''",
        "class A:\n    told: int",
        "self._is_told = True",
        "TOLDSiblings = 0",
        "def f(a, *told): pass",
        "def f(\n    a: int,\n    told: int,\n): pass",
        "f = lambda told: 0",
        "A = told = 0",
        "A = 0; told = 1",
        "class A: told = 1",
    ],
)
def test_a_forbidden_word_is_found_wherever_a_name_is_defined(text: str) -> None:
    assert found(text, *FORBIDDEN)


def test_prose_and_other_words_are_free() -> None:
    text = 'def stolds(each):\n    """Is told."""\n    return each.told'
    assert not found(text, *FORBIDDEN)


def test_no_name_holds_a_word_that_only_this_project_would_use() -> None:
    wrong = [
        f"{file}:{each}" for file, text in modules().items() for each in found(text, *FORBIDDEN)
    ]
    assert wrong == [], f"say instead: {FORBIDDEN}"


def test_a_turn_is_a_message_of_the_policy_and_no_place_in_a_queue() -> None:
    wrong = [
        f"{file}:{each}"
        for file, text in modules().items()
        if file.startswith(NO_TURN_HERE) and file not in TURN_IN_AN_EPISODE
        for each in found(text, "turn", "turns")
    ]
    assert wrong == []


def test_a_public_class_has_a_name_of_its_own() -> None:
    homes = defaultdict(list)
    for file, text in modules().items():
        if not file.startswith("tools"):
            for name in re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE):
                homes[name].append(file)
    doubled = {name: files for name, files in homes.items() if len(files) > 1}
    assert {name: files for name, files in doubled.items() if name not in SAME} == {}
    assert sorted(SAME.keys() - doubled.keys()) == [], "allowed, and not needed any more"
