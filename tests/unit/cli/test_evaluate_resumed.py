"""`podium eval run --name` that was interrupted, and is given again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InternalError
from podium.sdk import AsyncClient
from support.cli import Result, invoke
from support.fake_judge import Answer, completion, fake_judge
from support.fake_podium import FakePodium, fake_podium

POLICY = ("email_search", "-a", "mail@best", "--name", "n", "--concurrency", "1")
MODEL = ("email_search", "-a", "openai:m", "--name", "n", "--limit", "6", "--concurrency", "1")


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakePodium]:
    async with fake_podium(stored=tmp_path) as found:
        found.registry.publish("mail", 7, {}).aliases[:] = ["best"]
        yield found


def breaks_at(fake: FakePodium, scenario: str) -> None:
    """The rollout service breaks in the second attempt at this one."""

    def says(request: Any, attempt: int) -> str:
        if request.scenario.id == scenario and attempt == 1:
            raise InternalError("broken")
        return "words"

    fake.rollout.says = says


async def run(fake: FakePodium, folder: Path, *arguments: str, **environment: str) -> Result:
    found = {**fake.environment, **environment}
    return await invoke("eval", *arguments, cwd=folder, environment=found)


def asked(fake: FakePodium) -> list[str]:
    """The scenarios that were attempted since the last look."""
    found = [request.scenario.id for request in fake.rollout.requests]
    fake.rollout.requests.clear()
    return found


def journals(folder: Path) -> list[Path]:
    return sorted((folder / "config/evaluations").glob("*"))


async def test_a_policy_goes_on_with_its_version_and_is_stored_once(
    fake: FakePodium, tmp_path: Path
) -> None:
    command = (*POLICY, "--attempts", "2")
    whole = await run(fake, tmp_path, *command, "-o", "json", "--no-store")
    assert asked(fake) == ["0", "1", "2", "3"]
    # Nothing is left of one that ended well.
    assert journals(tmp_path) == []
    breaks_at(fake, "2")
    broken = await run(fake, tmp_path, *command)
    assert broken.code != 0
    assert "the same command goes on from it" in broken.err
    assert asked(fake) == ["0", "1", "2"]
    fake.rollout.says = None
    # The alias moves on; what was begun is of the version that it was.
    fake.registry.publish("mail", 9, {}).aliases[:] = ["best"]
    fake.registry.versions[0].aliases[:] = []
    fake.inference.loaded.clear()
    again = await run(fake, tmp_path, *command, "-o", "json")
    assert again.code == 0, again.err
    # The scenario that broke off in the middle is attempted whole.
    assert asked(fake) == ["2", "3"]
    assert fake.inference.loaded == [("mail", 7)]
    assert "4 of 8 episodes are there" in again.err
    (found,), (expected,) = json.loads(again.out), json.loads(whole.out)
    for each in (found, expected):
        each.pop("evaluation_id")
    assert found == expected
    async with AsyncClient(fake.addresses) as client:
        (stored,) = [each async for each in client.evaluations.list(name="n")]
    assert (stored.counted, stored.policy.version) == (8, 7)
    assert journals(tmp_path) == []
    # The next one of the name begins anew.
    await run(fake, tmp_path, *command)
    assert asked(fake) == ["0", "1", "2", "3"]


async def test_what_could_not_be_stored_is_there_for_the_next_command(tmp_path: Path) -> None:
    # A controller that keeps no evaluations.
    async with fake_podium() as without:
        without.registry.publish("mail", 7, {}).aliases[:] = ["best"]
        for expected in (4, 0):
            refused = await run(without, tmp_path, *POLICY, "--store")
            assert refused.code != 0
            assert "mail@best is not stored" in refused.err
            assert len(asked(without)) == expected
        # Who wants nothing stored is done.
        done = await run(without, tmp_path, *POLICY, "--no-store")
        assert (done.code, asked(without), journals(tmp_path)) == (0, [], [])


async def test_attempts_of_a_model_are_not_paid_for_again_and_silent_ones_are_asked_again(
    fake: FakePodium, tmp_path: Path
) -> None:
    with fake_judge() as api:
        environment = {"OPENAI_BASE_URL": api.base_url}

        def some(request: dict[str, Any]) -> Answer:
            return completion("select: 1") if len(api.requests) <= 4 else Answer(401, b"no key")

        api.then(some)
        broken = await run(fake, tmp_path, *MODEL, **environment)
        assert broken.code == 3
        assert "2 of 6 attempts of openai:m were never answered" in broken.err
        api.then(lambda _: completion("select: 1"))
        again = await run(fake, tmp_path, *MODEL, **environment)
        assert again.code == 0, again.err
        assert len(api.requests) == 2
    # Both were stored, as each was told: of four attempts, then of six.
    async with AsyncClient(fake.addresses) as client:
        stored = [each async for each in client.evaluations.list(name="n")]
    assert [each.counted for each in stored] == [6, 4]
    assert stored[0].run == stored[1].run


async def test_other_settings_are_refused_by_name_and_fresh_begins_anew(
    fake: FakePodium, tmp_path: Path
) -> None:
    breaks_at(fake, "2")
    command = (*POLICY, "--attempts", "2")
    await run(fake, tmp_path, *command)
    asked(fake)
    fake.rollout.says = None
    other = await run(fake, tmp_path, *command, "--seed", "3", "--max-turns", "4")
    assert other.code == 5
    assert "was begun with episode" in other.err
    assert "seed 0 and not 3" in other.err
    assert "--fresh" in other.err
    assert asked(fake) == []
    # Of another project it is another evaluation.
    await run(fake, tmp_path, *command, "--project", "other")
    assert len(asked(fake)) == 4
    fresh = await run(fake, tmp_path, *command, "--seed", "3", "--fresh")
    assert fresh.code == 0, fresh.err
    assert len(asked(fake)) == 4
    nameless = await run(fake, tmp_path, "email_search", "-a", "mail@7", "--fresh")
    assert nameless.code == 2


async def test_a_file_that_was_cut_or_damaged_costs_its_lines_alone(
    fake: FakePodium, tmp_path: Path
) -> None:
    breaks_at(fake, "3")
    await run(fake, tmp_path, *POLICY, "--attempts", "2")
    asked(fake)
    fake.rollout.says = None
    (file,) = journals(tmp_path)
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_bytes().splitlines(keepends=True)
    # A head, a version, and of three scenarios two attempts each, and one of the fourth.
    assert len(lines) == 9
    torn = json.loads(lines[3])
    del torn["digest"]
    lines[3] = json.dumps(torn).encode() + b"\n"
    file.write_bytes(b"".join(lines)[:-20])
    again = await run(fake, tmp_path, *POLICY, "--attempts", "2")
    assert again.code == 0, again.err
    assert asked(fake) == ["0", "3"]


async def test_what_is_no_journal_is_begun_anew(fake: FakePodium, tmp_path: Path) -> None:
    breaks_at(fake, "3")
    await run(fake, tmp_path, *POLICY, "--attempts", "2")
    (file,) = journals(tmp_path)
    fake.rollout.says = None
    for content in (b"", b"\x00\xff", b"[1]\n", b'{"format": 9, "run": "", "depends": {}}\n'):
        asked(fake)
        file.write_bytes(content)
        again = await run(fake, tmp_path, *POLICY, "--attempts", "2")
        assert (again.code, len(asked(fake))) == (0, 4), again.err


async def test_a_scenario_that_has_changed_is_measured_again(
    fake: FakePodium, tmp_path: Path
) -> None:
    source = """
from podium.environments import Environment, Observation, Scenario, StepResult, user

class Count(Environment):
    name = "count"
    splits = ("heldout",)

    def scenarios(self, split):
        return [Scenario(str(n), {"goal": GOAL if n == 2 else 1}) for n in range(4)]

    async def reset(self, scenario, seed):
        return Observation([user("?")])

    async def step(self, action):
        return StepResult(Observation(), 1.0, terminated=True)
"""
    task = tmp_path / "task.py"
    task.write_text(source.replace("GOAL", "1"))
    command = ("task.py", "-a", "openai:m", "--name", "n", "--concurrency", "1")
    with fake_judge() as api:
        environment = {"OPENAI_BASE_URL": api.base_url}
        api.then(lambda _: completion("x") if len(api.requests) <= 3 else Answer(401, b"no key"))
        broken = await run(fake, tmp_path, *command, **environment)
        assert broken.code == 3, broken.err
        # Of another length: Python takes a file of the same second and size for the one it knows.
        task.write_text(source.replace("GOAL", "20"))
        api.then(lambda _: completion("x"))
        again = await run(fake, tmp_path, *command, **environment)
        assert again.code == 0, again.err
        assert len(api.requests) == 2
