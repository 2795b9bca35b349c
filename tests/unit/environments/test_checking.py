"""Each fault of an environment is one finding, and a sound one has none."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

import pytest
from podium.environments import (
    Environment,
    Message,
    Observation,
    Scenario,
    Scripted,
    StepResult,
    Tool,
    tool_result,
    user,
)
from podium.environments.checking import Bounds, Finding, check

BOUNDS = Bounds(scenarios=2, turns=4)


class Sound(Environment):
    """Answers are worth their length; two turns."""

    name = "sound"
    turns = 0

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario(f"{split}-{n}", {"n": n, "of": split}) for n in range(3)]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        return Observation([user(f"Say {random.Random(seed).random()}.")])

    async def step(self, action: Message) -> StepResult:
        self.turns += 1
        reward = len(action.content) % 3 + len(action.tool_calls) * 0.5
        return StepResult(Observation([user("more")]), reward=reward, terminated=self.turns == 2)


async def findings(kind: type[Environment], **bounds: Any) -> list[Finding]:
    report = await check(kind, bounds=Bounds(scenarios=2, turns=4, **bounds))
    return list(report.findings)


async def test_a_sound_one_has_no_finding() -> None:
    report = await check(Sound, bounds=BOUNDS)
    assert report.findings == ()
    assert report.scenarios == {"train": 3, "heldout": 3}
    assert report.episodes == report.ended == 2 * 2 * BOUNDS.attempts
    assert report.turns == 2 * report.episodes


def of(**members: Any) -> type[Environment]:
    return type("Faulty", (Sound,), members)


def listing(function: Callable[[str], Any]) -> dict[str, Any]:
    return {"scenarios": lambda self, split: function(split)}


def resetting(function: Callable[[], Any]) -> dict[str, Any]:
    async def reset(self: Any, scenario: Scenario, seed: int) -> Any:
        return function()

    return {"reset": reset}


def stepping(function: Callable[[Message], Any]) -> dict[str, Any]:
    async def step(self: Any, action: Message) -> Any:
        return function(action)

    return {"step": step}


def over(reward: Any, **more: Any) -> StepResult:
    return StepResult(Observation(), reward=reward, terminated=True, **more)


def offering(*tools: Tool) -> dict[str, Any]:
    return resetting(lambda: Observation([user("use a tool")], tools))


COUNTER = count()
DRAWN = random.Random(1)
STRING: Mapping[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}}

ERRORS = {
    "no name": ({"name": ""}, "class", "Faulty has no name"),
    "no splits": ({"splits": ()}, "class", r"splits is \(\)"),
    "a split that is a text": ({"splits": "train"}, "class", "splits is 'train'"),
    "an empty split": (
        listing(lambda split: [Scenario("a", {"n": 1})] * (split == "train")),
        "scenarios",
        "the split 'heldout' is empty",
    ),
    "repeated ids": (
        listing(lambda split: [Scenario("a", {"n": 1}), Scenario("a", {"n": 2})]),
        "scenarios",
        "ids of 'train' come more than once: 'a'",
    ),
    "an order that changes": (
        listing(lambda split: [Scenario(f"{split}-{next(COUNTER)}") for _ in range(2)]),
        "scenarios",
        r"scenarios\('train'\) differs from call to call",
    ),
    "data that is no JSON": (
        listing(lambda split: [Scenario(f"{split}-{n}", {"n": {1, 2}}) for n in range(2)]),
        "scenarios",
        "the data of 'train-0' are no JSON",
    ),
    "scenarios that are none": (
        listing(lambda split: ["a", "b"]),
        "scenarios",
        r"scenarios\('train'\) has a str; allowed are Scenario",
    ),
    "scenarios that raise": (
        listing(lambda split: {}["no"]),
        "scenarios",
        r"scenarios\('train'\) raises KeyError: 'no'",
    ),
    "reset without a message": (
        resetting(Observation),
        "reset",
        "gives no message, so that the model has nothing to answer",
    ),
    "an empty text": (
        resetting(lambda: Observation([user(" \n")])),
        "reset",
        "gives an empty text",
    ),
    "a reset that is no observation": (
        resetting(lambda: "hello"),
        "reset",
        "raises TypeError .*reset returned str, not Observation",
    ),
    "a reset that differs": (
        resetting(lambda: Observation([user(f"Number {DRAWN.random()}")])),
        "reset",
        "differs from time to time with the same seed: 'Number",
    ),
    "a step that differs": (
        stepping(lambda action: over(DRAWN.random())),
        "step",
        "with the same seed lead elsewhere",
    ),
    "a reward that is infinite": (
        stepping(lambda action: over(float("inf"))),
        "step",
        "raises ValueError .*reward is inf",
    ),
    "a reward that is no number": (
        stepping(lambda action: over(float("nan") if "ord" in action.content else 1.0)),
        "step",
        r"for the reply 'word word.*…': reward is nan",
    ),
    "a metric that is none": (
        stepping(lambda action: over(1.0, metrics={"m": "high"})),
        "step",
        "raises ValueError",
    ),
    "an exception": (
        stepping(lambda action: over(float(int(action.content)))),
        "step",
        "raises ValueError for the reply '.*': invalid literal",
    ),
    "a step that returns nothing": (
        stepping(lambda action: None),
        "step",
        "step returned NoneType, not StepResult",
    ),
    "nothing to answer in the middle": (
        stepping(lambda action: StepResult(Observation(), reward=len(action.content))),
        "step",
        "gives no message",
    ),
    "rewards all alike for a baseline too": (
        {**stepping(lambda action: over(0.5)), "baselines": {"b": lambda s: Scripted(["a"], s)}},
        "reward",
        "episodes earned 0.5, the baselines' too",
    ),
    "a baseline that cannot be made": (
        {"baselines": {"b": lambda: None}},
        "baseline",
        "raises TypeError",
    ),
    "tools of one name": (
        offering(Tool("a", "x"), Tool("a", "y")),
        "tools",
        "2 tools on offer at once are called 'a'",
    ),
    "a tool's name": (offering(Tool("look up", "x")), "tools", "a tool is called 'look up'"),
    "a schema of no object": (
        offering(Tool("a", "x", {"type": "string"})),
        "tools",
        "type is 'string', not 'object'",
    ),
    "a schema of an unknown type": (
        offering(Tool("a", "x", {"type": "object", "properties": {"q": {"type": "text"}}})),
        "tools",
        "q is 'text'; allowed are string",
    ),
    "a schema of a bare type": (
        offering(Tool("a", "x", {"type": "object", "properties": {"q": "string"}})),
        "tools",
        "q is 'string', not an object",
    ),
    "a schema that requires what it lacks": (
        offering(Tool("a", "x", {**STRING, "required": ["query"]})),
        "tools",
        "required names 'query', which properties lacks",
    ),
}


@pytest.mark.parametrize("fault", ERRORS)
async def test_each_fault_is_told_once_as_an_error(fault: str) -> None:
    members, what, said = ERRORS[fault]
    found = await findings(of(**members))
    about = [each for each in found if each.level == "error" and re.search(said, each.said)]
    assert len(about) == 1, found
    assert about[0].what == what


async def test_an_exception_is_told_with_its_line_and_what_to_do() -> None:
    class Raises(Sound):
        async def step(self, action: Message) -> StepResult:
            return over({}[action.content])

    (found,) = [each for each in await findings(Raises) if each.what == "step"]
    assert found.line.startswith("test_checking.py:")
    assert "Give what a model may write a low reward" in found.advice
    assert "(16 of 16 episodes)" in found.said


WARNINGS = {
    "guesses that earn alike": (stepping(lambda action: over(0)), "reward", "earned 0; guesses"),
    "what never ends": (
        stepping(lambda action: StepResult(Observation([user("on")]), len(action.content) % 3)),
        "end",
        "none of 16 episodes ended within 4 turns",
    ),
    "held-out scenarios that are trained on": (
        listing(lambda split: [Scenario(f"{split}-{n}", {"n": n}) for n in range(2)]),
        "scenarios",
        "2 of 2 scenarios of 'heldout' are in 'train' too",
    ),
    "no held-out split": ({"splits": ("train",)}, "class", "there is no split 'heldout'"),
    "a call without an answer": (offering(Tool("a", "x", STRING)), "tools", "gets no answer"),
    "a tool without a description": (offering(Tool("a")), "tools", "has no description"),
}


@pytest.mark.parametrize("fault", WARNINGS)
async def test_what_may_be_meant_so_is_a_warning(fault: str) -> None:
    members, what, said = WARNINGS[fault]
    found = await findings(of(**members))
    assert [(each.level, each.what) for each in found if said in each.said] == [("warning", what)]


async def test_tools_that_are_answered_are_no_finding() -> None:
    class Search(Sound):
        tool: ClassVar[Tool] = Tool("search", "Searches.", {**STRING, "required": ["q"]})

        async def reset(self, scenario: Scenario, seed: int) -> Observation:
            return Observation([user("Search.")], [self.tool])

        async def step(self, action: Message) -> StepResult:
            self.turns += 1
            answers = [tool_result(call, "found") for call in action.tool_calls] or [user("no")]
            seen = Observation(answers, [self.tool])
            return StepResult(seen, len(action.tool_calls), terminated=self.turns == 3)

    report = await check(Search, bounds=BOUNDS)
    assert report.findings == ()
    assert max(report.rewards) > 0


async def test_a_slow_step_is_told_with_its_seconds() -> None:
    class Clock:
        now = 0.0

    async def step(self: Any, action: Message) -> StepResult:
        Clock.now += 2.5
        return over(len(action.content))

    report = await check(of(step=step), bounds=BOUNDS, clock=lambda: Clock.now)
    (found,) = report.findings
    assert "a step took 2.5 s; those of 16 of 16 episodes" in found.said
    assert report.slowest_seconds == 2.5


async def test_a_step_that_waits_for_ever_is_given_up() -> None:
    async def step(self: Any, action: Message) -> StepResult:
        await asyncio.Event().wait()
        raise AssertionError

    found = await findings(of(step=step), hung_seconds=0.01)
    assert [each.said for each in found if each.what == "step"] == [
        "step does not return within 0.01 s (2 of 2 episodes)"
    ]
