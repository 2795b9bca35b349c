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
from support.cli import Result, invoke
from support.fake_judge import FakeJudge, fails, fake_judge, scores
from support.fake_podium import FakePodium, fake_podium
from support.judging import by_number, judge_service

PAIR = ("email_search", "-a", "base", "-a", "mail@7", "--judge")


class Installation:
    """The doubles, with the judge's own service."""

    def __init__(self, fake: FakePodium, model: FakeJudge, judge: str) -> None:
        self.fake, self.model, self.judge = fake, model, judge

    async def run(self, folder: Path, *arguments: str) -> Result:
        environment = {**self.fake.environment, "PODIUM_JUDGE_ADDRESS": self.judge}
        return await invoke("eval", *arguments, cwd=folder, environment=environment)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Installation]:
    with fake_judge() as model:
        model.then(scores(by_number))
        async with judge_service(model) as judge, fake_podium(stored=tmp_path) as fake:
            fake.registry.publish("mail", 7, {})

            def says(request: Any, attempt: int) -> str:
                # The same words, better, as good in other words, better.
                trained = ("well 5", "well 9", "good 5", "well 8")
                return trained[int(request.scenario.id)] if request.policy.job else "well 5"

            fake.rollout.says = says
            yield Installation(fake, model, judge)


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


async def test_a_judge_that_cannot_compare_is_refused_before_anything_runs(
    here: Installation, tmp_path: Path
) -> None:
    (tmp_path / "rubric.yaml").write_text("scorers: [{kind: environment}]")
    (tmp_path / "wrong.yaml").write_text("scorers: [{kind: ruler, ruler: {quorum: -1}}]")
    (tmp_path / "list.yaml").write_text("[]")
    two = ("email_search", "-a", "base", "-a", "mail@7", "--judge")
    for arguments, words in (
        (("email_search", "-a", "base", "--judge", "ruler"), "name two or more"),
        ((*two, "rubric.yaml"), "allowed is one scorer, of kind `ruler`"),
        ((*two, "wrong.yaml"), "quorum"),
        ((*two, "list.yaml"), "allowed is a"),
        ((*two, "missing.yaml"), "No such file"),
        (
            ("email_search", "-a", "base", "-a", "baseline:random", "--judge", "ruler"),
            "got 'baseline:random'",
        ),
    ):
        result = await here.run(tmp_path, *arguments)
        assert result.code == 2, (arguments, result.err)
        assert words in result.err, result.err
    assert not here.fake.rollout.requests
