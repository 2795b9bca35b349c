"""Episodes of the coding environment, its submissions run in the real sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError
from podium.environments import Message, Observation, Scenario, Scripted, StepResult, play
from podium.environments.coding import Coding, environment, grader
from podium.environments.serving.convert import struct
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_judge.domain.scores import Score
from podium_judge.domain.weighted import WeightedScorer
from support.environments import check_contract
from support.namespaces import needs_namespaces

pytestmark = needs_namespaces

NEXT = Scenario(
    "next",
    {
        "function": "f",
        "text": "def f(n):\nReturn n plus one.",
        "examples": [{"input": [1], "output": 2}, {"input": [7], "output": 8}],
        "hidden": [{"input": [n], "output": n + 1} for n in (20, 30, 40, 50)],
        "solution": "def f(n):\n    return n + 1\n",
    },
)
RIGHT = "```python\ndef f(n):\n    return n + 1\n```"
WRONG = "```python\ndef f(n):\n    return n\n```"
HALF = "```python\ndef f(n):\n    return n + 1 if n < 35 else 0\n```"


def text_of(observation: Observation) -> str:
    return "\n".join(message.content for message in observation.messages)


async def submit(
    *replies: str, data: dict[str, Any] | None = None, **config: Any
) -> list[StepResult]:
    episode = Coding(config)
    await episode.reset(Scenario("x", {**NEXT.data, **(data or {})}), seed=1)
    return [await episode.step(Message("assistant", reply)) for reply in replies]


async def test_the_prompt_shows_the_examples_and_no_hidden_test() -> None:
    observation = await Coding().reset(NEXT, seed=1)
    prompt = text_of(observation)
    assert prompt.endswith("Return n plus one.\nf(1) == 2\nf(7) == 8")
    assert "20" not in prompt
    assert observation.state == {"function": "f", "attempts_left": 3}


async def test_a_right_submission_earns_one_and_ends() -> None:
    (result,) = await submit(RIGHT)
    assert result.terminated
    assert result.reward == pytest.approx(1.0)
    assert result.metrics == {
        "success": 1.0,
        "tests_passed": 4.0,
        "tests_total": 4.0,
        "valid_format": 1.0,
        "turns": 1.0,
    }


async def test_a_failed_example_is_shown_and_can_be_mended() -> None:
    first, second = await submit(WRONG, RIGHT)
    assert not first.terminated
    assert first.reward == environment.FORMAT_REWARD
    assert "f(1) returned 1, expected 2" in text_of(first.observation)
    assert first.observation.state["attempts_left"] == 2
    assert first.metrics["success"] == first.metrics["tests_passed"] == 0.0
    assert second.terminated
    assert first.reward + second.reward == pytest.approx(1.0)


async def test_the_last_submission_is_graded_whatever_it_is() -> None:
    results = await submit(WRONG, WRONG, WRONG)
    assert [r.terminated for r in results] == [False, False, True]
    assert sum(r.reward for r in results) == pytest.approx(environment.FORMAT_REWARD)
    assert results[-1].observation.messages == []


@pytest.mark.parametrize(
    ("replies", "reward", "success"), [([WRONG, RIGHT], 1.0, 1.0), ([WRONG, "Sorry."], 0.05, 0.0)]
)
async def test_of_an_episode_that_was_cut_the_last_submission_is_graded_once(
    replies: list[str], reward: float, success: float
) -> None:
    played = await play(Coding(), NEXT, Scripted(replies), max_turns=2)
    assert played.reward == pytest.approx(reward)
    assert (played.metrics["success"], played.metrics["turns"]) == (success, 2.0)


async def test_a_submission_that_fails_an_example_may_still_earn_its_part_when_cut() -> None:
    late = "```python\ndef f(n):\n    return n + 1 if n > 10 else 0\n```"
    played = await play(Coding(), NEXT, Scripted([late]), max_turns=1)
    assert (played.terminated, played.metrics["tests_passed"]) == (False, 4.0)
    assert played.info["result"] == "def f(n):\n    return n + 1 if n > 10 else 0\n"


async def test_part_of_the_hidden_tests_earn_a_part_below_half() -> None:
    (result,) = await submit(HALF)
    assert result.terminated
    assert result.metrics["tests_passed"] == 2.0
    assert result.metrics["success"] == 0.0
    assert result.reward == pytest.approx(0.1 + 0.4 / 2)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I cannot.",
        "```python\ndef g(n):\n    return 1\n```",
        "```\n```",
        "f(1) == 2",
        "deff(n)",
    ],
)
async def test_a_reply_without_the_function_costs_and_is_told(reply: str) -> None:
    bad, good = await submit(reply, RIGHT)
    assert bad.reward == environment.INVALID_REWARD < 0
    assert "defines f" in text_of(bad.observation)
    assert bad.metrics["valid_format"] == 0.0
    assert good.metrics["valid_format"] == 0.5
    assert good.metrics["success"] == 1.0
    (last,) = await submit(reply, attempts=1)
    assert last.terminated
    assert last.metrics["success"] == 0.0


@pytest.mark.parametrize(
    "reply",
    [
        "def f(n):\n    return n + 1",
        "Here it is:\n```python\ndef f(n):\n    return n + 1\n```\nIt adds one. ```f(1)```",
        "```py\nimport math\n\n\ndef f(n: int) -> int:\n    return math.floor(n) + 1\n```",
        "```\ndef f(n):\n    return n + 1",
    ],
)
async def test_code_is_found_in_a_block_or_without_one(reply: str) -> None:
    (result,) = await submit(reply)
    assert result.metrics["success"] == 1.0


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return n / 0", "failed (ZeroDivisionError: division by zero)"),
        ("return {n}", "failed (TypeError: Object of type set is not JSON serializable)"),
        ("while True: pass", "failed (it gave no answer in time, or died)"),
        ("return [n] * 999", "...,"),
        ("return (", "failed (SyntaxError: '(' was never closed"),
        ("return input()", "failed (EOFError"),
        ("raise SystemExit", "failed (SystemExit"),
    ],
)
async def test_what_went_wrong_is_told(body: str, told: str) -> None:
    # In which its process must start too.
    (result,) = await submit(f"def f(n):\n    {body}", case_seconds=3)
    assert told in text_of(result.observation)
    assert len(text_of(result.observation)) < 1000


async def test_a_test_that_hangs_or_kills_fails_alone() -> None:
    """The rest is asked in a new process, but not for ever."""
    hangs = (
        "import os\ndef f(n):\n  while n == 20: pass\n  return os._exit(0) if n == 40 else n + 1"
    )
    (result,) = await submit(hangs, case_seconds=3)
    assert result.metrics["tests_passed"] == 2.0
    dies = "import os\ndef f(n):\n    return n + 1 if n in (1, 7, 50) else os._exit(0)"
    (result,) = await submit(dies)
    assert result.metrics["tests_passed"] == 0.0


async def test_what_a_function_prints_and_keeps_is_its_own_affair() -> None:
    (result,) = await submit(
        "seen = []\ndef f(n):\n    print('x' * 10_000_000)\n    seen.append(n)\n    return n + 1"
    )
    assert result.metrics["success"] == 1.0


async def test_the_judge_reads_the_code_and_the_tests() -> None:
    scorer = WeightedScorer(
        spec_pb2.WeightedCriteria(task_type="code_generation", accuracy=1, optimal_actions=5), "x"
    )
    found = []
    for reply in (RIGHT, HALF, "def f(n): return ("):
        (result,) = await submit(reply, attempts=1)
        trajectory = trajectory_pb2.Trajectory(info=struct(result.info), metrics=result.metrics)
        score = scorer.score(trajectory)
        assert isinstance(score, Score)
        found.append(score.value)
    assert found == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("split", Coding.splits)
async def test_the_reference_solves_every_task_and_nothing_solves_none(split: str) -> None:
    for scenario in Coding().scenarios(split):
        solved = await play(Coding(), scenario, Coding.baselines["reference"](1), max_turns=1)
        assert solved.metrics["success"] == 1.0, scenario.id
        assert solved.terminated
        assert solved.reward == pytest.approx(1.0)
    for scenario in Coding().scenarios(split)[:3]:
        failed = await play(Coding(), scenario, Coding.baselines["empty"](1), max_turns=3)
        assert failed.metrics["tests_passed"] == 0.0
        assert failed.terminated
        assert failed.reward == pytest.approx(environment.FORMAT_REWARD)


async def test_every_scenario_keeps_the_contract() -> None:
    await check_contract(Coding, ["no code", "none\n", "nothing"])


async def test_without_a_sandbox_no_episode_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grader.shared_sandbox(), "_checked", False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FailedPreconditionError, match="bubblewrap"):
        await Coding().reset(NEXT, seed=1)
