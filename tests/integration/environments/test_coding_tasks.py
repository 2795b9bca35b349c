from __future__ import annotations

import ast
import inspect
import json
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.environments.coding import Coding
from podium.environments.coding.grader import CallResult, right
from podium.environments.coding.scenarios import read, scenario, tasks
from podium.environments.coding.tasks import EXAMPLES, CodingTask, Tasks
from podium.environments.serving.convert import scenario_from_pb, scenario_to_pb
from support.namespaces import needs_namespaces

pytestmark = needs_namespaces

EVERY = [task for split in tasks().values() for task in split]


def test_no_held_out_task_is_trained_on() -> None:
    train, heldout = ({task.name for task in tasks()[split]} for split in ("train", "heldout"))
    assert len(train) >= 30
    assert len(heldout) >= 15
    assert len({task.name for task in EVERY}) == len(EVERY)
    texts = {task.text for task in tasks()["train"]}
    assert not texts & {task.text for task in tasks()["heldout"]}
    bodies = {_body(task) for task in tasks()["train"]}
    assert not bodies & {_body(task) for task in tasks()["heldout"]}


def _body(task: CodingTask) -> str:
    (function,) = ast.parse(task.source).body
    assert isinstance(function, ast.FunctionDef)
    return ast.dump(ast.Module(function.body, []))


def test_each_split_has_every_level_and_begins_with_the_easy_ones() -> None:
    for found in tasks().values():
        levels = [task.level for task in found]
        assert levels == sorted(levels)
        assert set(levels) == {1, 2, 3, 4}


@pytest.mark.parametrize("task", EVERY, ids=lambda task: task.name)
def test_the_hidden_tests_tell_a_solution_from_a_guess(task: CodingTask) -> None:
    hidden = task.cases[EXAMPLES:]
    assert len(hidden) >= 4
    for constant in [case["output"] for case in task.cases] + [None]:
        passed = sum(right(CallResult(constant), case["output"]) for case in hidden)
        assert passed <= (len(hidden) + 1) / 2, constant
    inputs = [json.dumps(case["input"]) for case in task.cases]
    assert len(set(inputs)) == len(inputs)


@pytest.mark.parametrize("task", EVERY, ids=lambda task: task.name)
def test_a_task_survives_the_wire(task: CodingTask) -> None:
    """Numbers travel as doubles: a case with a larger one would change."""
    sent = scenario(task, "train")
    received = scenario_from_pb(scenario_to_pb(sent, "train"))
    assert received.data == sent.data
    problem = read(received.data)
    assert problem.text.startswith(f"def {problem.function}(")
    assert problem.solution.startswith(task.signature)
    assert list(inspect.signature(task.solution).parameters) == [
        argument.arg
        for argument in ast.parse(task.source).body[0].args.args  # type: ignore[attr-defined]
    ]


def test_a_solution_that_changes_its_input_does_not_change_the_task() -> None:
    found = Tasks()

    @found.add(1, "Return the items and lose them.", [[[1, 2]]])
    def lose(items: list[int]) -> tuple[int, ...]:
        taken = tuple(items)
        items.clear()
        return taken

    (task,) = found.found
    assert task.cases == [{"input": [[1, 2]], "output": [1, 2]}]


@pytest.mark.parametrize(
    ("value", "expected", "is_right"),
    [
        (1, 1, True),
        (1.0, 1, True),
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (0.3001, 0.3, False),
        (True, 1, False),
        (1, True, False),
        (True, True, True),
        (None, False, False),
        (None, None, True),
        ("1", 1, False),
        ([1, [2]], [1, [2]], True),
        ([1, [2]], [1, [3]], False),
        ([1], [1, 2], False),
        ([], {}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (float("nan"), 1, False),
        (10**400, 1.5, False),
        (float("inf"), 10**400, False),
    ],
)
def test_answers_are_compared_by_value_and_kind(value: Any, expected: Any, is_right: bool) -> None:
    assert right(CallResult(value), expected) is is_right
    assert not right(CallResult(value, error="raised"), expected)


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ({}, {"function", "text", "hidden"}),
        ({"function": "f", "text": "", "hidden": []}, {"hidden"}),
        ({"function": "f()", "text": "", "hidden": [{"input": [], "output": 1}]}, {"function"}),
        ({"function": "f", "text": "", "hidden": [{"input": 1, "output": 1}]}, {"hidden.0.input"}),
    ],
)
def test_a_scenario_is_refused_by_field(data: dict[str, Any], fields: set[str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        read(data)
    assert {v.field for v in caught.value.violations} == {f"scenario.data.{f}" for f in fields}


@pytest.mark.parametrize("options", [{"attempt": 3}, {"attempts": 0}, {"case_seconds": 0}])
def test_wrong_options_are_refused_by_field(options: dict[str, object]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"environment.config.{next(iter(options))}"):
        Coding(options)
