"""`podium eval --judge`: the judge service itself, over a model that a script plays."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.statistics import clustered_share_interval
from podium.sdk import AsyncClient
from support.fake_judge import fails, fake_judge, says, scores
from support.judged_evaluation import Installation, judged_installation
from support.judging import by_number

PAIR = ("email_search", "-a", "base", "-a", "mail@7", "--judge")


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Installation]:
    async with judged_installation(tmp_path) as found:
        yield found


async def test_two_policies_are_compared_in_both_orders_and_the_wins_are_stored(
    here: Installation, tmp_path: Path
) -> None:
    result = await here.run(tmp_path, *PAIR, "ruler", "-o", "json")
    assert result.code == 0, result.err
    base, mail = json.loads(result.out)
    assert base["judged_against_first"] is None
    found = mail["judged_against_first"]
    wins = [[0.5], [1.0], [0.5], [1.0]]
    assert (found["scenarios"], found["win_rate"], found["unjudged"]) == (4, 0.75, {})
    assert (found["low"], found["high"]) == clustered_share_interval(wins)
    assert found["first_shown"] == 0.5
    # In both orders, and nobody is asked to tell the same words apart.
    assert len(here.model.requests) == 6
    async with AsyncClient(here.fake.addresses) as client:
        stored = await client.evaluations.get(mail["evaluation_id"])
        results = await client.evaluations.results(stored.id)
    assert [list(each.wins) for each in results] == wins
    assert stored.win_rate.mean == 0.75
    assert stored.reference == "base"
    assert stored.judge.scorers[0].ruler.both_orders
    table = await here.run(tmp_path, *PAIR, "ruler")
    assert "mail@7 against base, judged: wins 75.0% (95 %" in table.out
    shown = await here.run(tmp_path, "show", stored.id)
    assert "win rate     75.0%" in shown.out


async def test_a_judge_that_favours_the_first_place_decides_nothing_and_is_told(
    here: Installation, tmp_path: Path
) -> None:
    def favours(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for place, entry in enumerate(entries):
            entry["score"] = 0.1 if place else 0.9
        return entries

    here.model.then(scores(by_number, edit=favours))
    result = await here.run(tmp_path, *PAIR, "ruler", "-o", "json", "--no-store")
    _, mail = json.loads(result.out)
    assert mail["judged_against_first"]["win_rate"] == 0.5
    assert mail["judged_against_first"]["first_shown"] == 1.0


async def test_what_no_judge_answered_for_is_told_and_counts_nowhere(
    here: Installation, tmp_path: Path
) -> None:
    # The key is refused from the second scenario on.
    here.model.then(scores(by_number), scores(by_number), fails(401))
    arguments = ("ruler", "--concurrency", "1", "-o", "json", "--no-store")
    result = await here.run(tmp_path, *PAIR, *arguments)
    assert result.code == 3
    assert "2 scenarios of mail@7 were not judged, and count for nothing" in result.err
    _, mail = json.loads(result.out)
    # The same words need no judge, and one pair was answered for.
    assert mail["judged_against_first"]["scenarios"] == 2
    assert mail["success"] == 0.75
    # Again, and only what is not known is asked.
    here.model.then(scores(by_number))
    again = await here.run(tmp_path, *PAIR, *arguments)
    assert again.code == 0, again.err
    assert len(here.model.requests) == 4


async def test_with_a_name_a_judge_is_asked_again_and_no_episode_is_played_again(
    here: Installation, tmp_path: Path
) -> None:
    arguments = ("ruler", "--name", "n", "--concurrency", "1", "-o", "json", "--no-store")
    here.fake.rollout.rewards = (0.9, 0.51, math.inf, 0.5)
    here.model.then(fails(401))
    first = await here.run(tmp_path, *PAIR, *arguments)
    assert first.code == 3, first.err
    assert len(here.fake.rollout.requests) == 8
    here.model.then(scores(by_number))
    again = await here.run(tmp_path, *PAIR, *arguments)
    assert again.code == 0, again.err
    assert len(here.fake.rollout.requests) == 8
    _, mail = json.loads(again.out)
    assert mail["judged_against_first"]["win_rate"] == 0.75
    assert [each["reward"] for each in mail["episodes"]] == [0.9, 0.51, None, 0.5]


def names_nothing(text: str) -> float:
    """A judge of email search that likes whoever selected one."""
    last = json.loads(text.splitlines()[-1])
    return float(last.get("assistant", "select: none") != "select: none")


async def test_baselines_and_models_of_others_are_read_and_compared_too(
    here: Installation, tmp_path: Path
) -> None:
    with fake_judge() as api:
        api.then(says("select: none"))
        here.openai = api.base_url
        here.model.then(fails(401))
        command = (
            *("email_search", "-a", "openai:m", "-a", "baseline:scripted", "--limit", "3"),
            *("--judge", "ruler", "--name", "n", "-o", "json", "--no-store"),
        )
        refused = await here.run(tmp_path, *command)
        assert refused.code == 3, refused.err
        here.model.then(scores(names_nothing))
        result = await here.run(tmp_path, *command)
        assert result.code == 0, result.err
        # What was said is kept with what came of it.
        assert len(api.requests) == 3
    model, scripted = json.loads(result.out)
    assert model["judged_against_first"] is None
    assert scripted["judged_against_first"]["scenarios"] == 3
    assert scripted["judged_against_first"]["win_rate"] == 1.0
    assert len(here.model.requests) == 6
    for request in here.model.requests:
        system, user = (message["content"] for message in request["messages"])
        assert "Judge 2 attempts" in system
        # The rules that both were given stand once, and what each saw after its own words.
        assert user.count("You find emails") == 1
        assert "Results:" in user


async def test_an_attempt_that_was_never_answered_is_in_no_comparison_and_one_that_raised_loses(
    here: Installation, tmp_path: Path
) -> None:
    (tmp_path / "at_times.py").write_text(RAISING)
    with fake_judge() as api:
        api.then(says("fine"), says("fine"), fails(418))
        here.openai = api.base_url
        here.model.then(scores(lambda _: 0.5))
        result = await here.run(
            tmp_path,
            *(
                "at_times:Task",
                "-a",
                "baseline:broken",
                "-a",
                "openai:m",
                "--split",
                "train",
            ),
            *("--concurrency", "1", "--judge", "ruler", "-o", "json", "--no-store"),
        )
    assert result.out, result.err
    _, model = json.loads(result.out)
    found = model["judged_against_first"]
    assert (found["scenarios"], found["win_rate"], found["unjudged"]) == (2, 1.0, {})
    assert not here.model.requests


RAISING = """
from podium.environments import Agent, Environment, Observation, Scenario, StepResult, user


class Broken(Agent):
    async def act(self, observation):
        raise ValueError("\\ud800")


class Task(Environment):
    name = "task"
    description = "Says something."
    splits = ("train",)
    baselines = {"broken": Broken}

    def scenarios(self, split):
        return [Scenario(str(n), {}) for n in range(3)]

    async def reset(self, scenario, seed):
        return Observation([user(scenario.id)])

    async def step(self, action):
        return StepResult(Observation(), reward=1.0, terminated=True)
"""
