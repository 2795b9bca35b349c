"""A job file that forks a checkpoint by its alias: the command, over real channels."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.core.contract import parse_yaml
from podium.core.contract.fork_alias import take_alias
from podium.core.errors import Violation
from podium.types.v1 import spec_pb2
from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium

JOB = """\
base_model: smollm2-135m-instruct
environment: {name: email_search}
training: {steps: 9}
fork:
  model: first
  version: VERSION
"""


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        for version, aliases in ((3, ["best"]), (7, ["latest"])):
            made = running.registry.publish("first", version, {})
            made.aliases[:] = aliases
        yield running


async def submit(fake: FakePodium, folder: Path, version: str, *extra: str) -> Result:
    (folder / "job.yaml").write_text(JOB.replace("VERSION", version))
    command = ("job", "submit", "-f", "job.yaml", "--id", "second", *extra)
    return await invoke(*command, cwd=folder, environment=fake.environment)


@pytest.mark.parametrize(
    ("written", "extra", "version"),
    [
        ("best", (), 3),
        ("'latest'", (), 7),
        ("5", (), 5),
        ("5", ("--set", "fork.version=best"), 3),
        ("best", ("--set", "fork.version=5"), 5),
        ("best", ("--set", "fork.version=5", "--set", "fork.version = latest"), 7),
    ],
)
async def test_the_alias_becomes_a_version_at_submission(
    fake: FakePodium, tmp_path: Path, written: str, extra: tuple[str, ...], version: int
) -> None:
    done = await submit(fake, tmp_path, written, *extra)
    assert (done.code, done.err.splitlines()[0][:6]) == (0, "job se"), done.err
    fork = fake.jobs.known["second"].spec.fork
    assert (fork.model, fork.version) == ("first", version)


async def test_a_dry_run_looks_the_alias_up_too(fake: FakePodium, tmp_path: Path) -> None:
    done = await submit(fake, tmp_path, "best", "--dry-run", "-o", "json")
    assert json.loads(done.out)["fork"] == {"model": "first", "version": 3}
    assert fake.jobs.known == {}


async def test_an_unknown_alias_creates_nothing(fake: FakePodium, tmp_path: Path) -> None:
    done = await submit(fake, tmp_path, "finest")
    assert done.code == 5
    assert "first" in done.err
    assert fake.jobs.known == {}


@pytest.mark.parametrize("written", ["Best", "best@3", "1.5", "true", "[best]", "-1"])
async def test_what_is_neither_is_told_with_its_line(
    fake: FakePodium, tmp_path: Path, written: str
) -> None:
    done = await submit(fake, tmp_path, written)
    assert done.code == 2
    assert "job.yaml:6: fork.version: got" in done.err
    assert fake.jobs.known == {}


def test_other_problems_of_the_file_stay() -> None:
    text = JOB.replace("VERSION", "best").replace("steps: 9", "steps: many")
    violations = parse_yaml(text, spec_pb2.JobSpec).violations
    taken = take_alias(text, violations, ["fork.model=x", "seed=1"])
    assert taken.alias == "best"
    assert {violation.field for violation in taken.violations} == {"training.steps"}
    assert taken.settings == ["fork.model=x", "seed=1"]
    assert take_alias("no: [yaml", [Violation("", "x")], []).violations == [Violation("", "x")]


async def test_the_schema_that_editors_use_takes_both(tmp_path: Path) -> None:
    done = await invoke("job", "schema", "-o", "json", cwd=tmp_path, environment={})
    version = json.loads(done.out)["properties"]["fork"]["properties"]["version"]
    assert version["type"] == ["integer", "string"]
