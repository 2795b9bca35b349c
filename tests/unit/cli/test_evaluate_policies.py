"""S13: `podium eval` of a checkpoint, against doubles of the services."""

from __future__ import annotations

import json
from pathlib import Path

from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium


async def evaluated(fake: FakePodium, folder: Path, *arguments: str) -> Result:
    return await invoke(
        "eval", "email_search", *arguments, cwd=folder, environment=fake.environment
    )


async def test_s13_the_best_checkpoint_is_measured_over_ten_turns_at_most(tmp_path: Path) -> None:
    """Of four, three end with a reward above 0.5; the fourth has exactly 0.5."""
    async with fake_podium() as fake:
        fake.registry.publish("mail", 7, {}).aliases[:] = ["best"]
        fake.registry.publish("mail", 9, {})
        result = await evaluated(fake, tmp_path, "-a", "mail@best")
        assert result.code == 0, result.err
        assert result.out.splitlines()[1].split()[:2] == ["mail@best", "75.00%"]
        assert fake.inference.loaded == [("mail", 7)]
        for request in fake.rollout.requests:
            assert (request.policy.job, request.policy.version) == ("mail", 7)
            assert request.episode.max_turns == 10


async def test_s13_a_number_and_the_newest_are_named_as_well(tmp_path: Path) -> None:
    async with fake_podium() as fake:
        fake.registry.publish("mail", 7, {}).aliases[:] = ["best"]
        fake.registry.publish("mail", 9, {})
        result = await evaluated(
            fake, tmp_path, "-a", "mail@7", "-a", "mail@latest", "-o", "json", "--max-turns", "3"
        )
        assert [found["success"] for found in json.loads(result.out)] == [0.75, 0.75]
        assert {r.policy.version for r in fake.rollout.requests} == {7, 9}
        assert {r.episode.max_turns for r in fake.rollout.requests} == {3}


async def test_s13_a_checkpoint_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    async with fake_podium() as fake:
        fake.registry.publish("mail", 7, {})
        result = await evaluated(fake, tmp_path, "-a", "mail@best")
        assert result.code != 0
        assert "mail" in result.err
        assert not fake.rollout.requests


async def test_without_scenarios_no_policy_is_loaded_and_the_split_is_named(tmp_path: Path) -> None:
    async with fake_podium() as fake:
        fake.rollout.rewards = ()
        fake.registry.publish("mail", 7, {})
        result = await evaluated(fake, tmp_path, "-a", "mail@7", "--split", "dev", "-o", "json")
        assert result.code == 2
        assert "email_search has no scenarios in the split 'dev'" in result.err
        assert not result.out
        assert not fake.inference.loaded
