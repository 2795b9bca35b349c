"""From a spec in any form to a job, and to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import podium
import pytest
from podium.core.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import AsyncClient
from podium.sdk.jobs import Jobs
from podium.types.v1 import spec_pb2
from support import job_records
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium, fake_podium
from support.notebook import notebook

TEXT = "base_model: m\nenvironment: {name: x}\ntraining: {steps: 3}\n"
VALUES: dict[str, Any] = {
    "base_model": "m",
    "environment": {"name": "x"},
    "training": {"steps": 3},
}
TYPED = podium.JobSpec.from_dict(VALUES)


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        running.jobs.created_state = jobs.JOB_STATE_SUCCEEDED
        running.jobs.updates = watched_job(job_records.job("w", 3, 3))
        yield running


@pytest.fixture
async def client(fake: FakePodium) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(fake.addresses) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(TEXT)
    return path


async def test_a_job_is_taken_in_every_form(client: AsyncClient, file: Path) -> None:
    sources = (TYPED, TYPED.to_proto(), VALUES, {**VALUES, "training": TYPED.training}, file)
    wanted = await client.jobs.create(TYPED.to_proto(), job_id="first")
    for number, source in enumerate((*sources, str(file))):
        job = await client.jobs.create(source, job_id=f"a{number}")
        assert job.spec == wanted.spec


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text("base_model: m\ntraining:\n  stepz: 3\n  steps: 1\n")
    return path


async def test_what_is_wrong_is_said_before_anything_is_sent(
    fake: FakePodium, client: AsyncClient, wrong: Path
) -> None:
    for source, text in (
        (wrong, f"{wrong}:3: training.stepz: unknown field; did you mean 'steps'?"),
        ({"base_model": "m", "training": {}}, "training.steps: is required"),
        (podium.JobSpec(base_model="m"), "training: is required"),
        (3, "got a value of type int; allowed are podium.JobSpec, its message, a dict and the"),
        (TYPED.training, "got a value of type TrainingSpec"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            await client.jobs.create(source)  # type: ignore[arg-type]
        assert text in str(caught.value)
    with pytest.raises(FileNotFoundError):
        await client.jobs.create("nope.yaml")
    assert not fake.jobs.known


async def test_a_forks_alias_is_looked_up(fake: FakePodium, client: AsyncClient) -> None:
    fake.registry.publish("old", 7, {"adapter/a": b"x"}).aliases.append("best")
    forked = {**VALUES, "fork": {"model": "old", "version": "best"}}
    for source in (forked, podium.JobSpec.from_dict(forked)):
        assert (await client.jobs.create(source, validate_only=True)).spec.fork.version == 7
    forked["fork"]["model"] = "other"
    with pytest.raises(NotFoundError):
        await client.jobs.create(forked)
    alone = Jobs(lambda: client._channels.channel("controller"))
    with pytest.raises(InvalidArgumentError, match="without a registry"):
        await alone.create(forked)


async def test_parts_of_a_job_are_taken_in_every_form(
    fake: FakePodium, client: AsyncClient
) -> None:
    fake.jobs.known["w"] = job_records.job("w")
    for budget in (
        podium.BudgetSpec(max_gpu_hours=2),
        {"max_gpu_hours": 2},
        spec_pb2.BudgetSpec(max_gpu_hours=2),
    ):
        assert (await client.jobs.resume("w", budget=budget)).spec.budget.max_gpu_hours == 2
    with pytest.raises(InvalidArgumentError, match="did you mean 'max_gpu_hours'"):
        await client.jobs.resume("w", budget={"max_gpu_hour": 2})
    with pytest.raises(InvalidArgumentError, match=r"allowed are podium\.BudgetSpec, its message"):
        await client.jobs.resume("w", budget=podium.LoraSpec())  # type: ignore[arg-type]


def test_a_model_takes_a_part_of_a_job_in_every_form() -> None:
    for part in (
        podium.JobSpec(training=podium.TrainingSpec(learning_rate=1e-5)),
        {"training": {"learning_rate": 1e-5}},
        spec_pb2.JobSpec(training=spec_pb2.TrainingSpec(learning_rate=1e-5)),
    ):
        model = podium.TrainableModel(name="n", base_model="m", spec=part)
        assert model.spec.training.learning_rate == 1e-5
        assert model.spec.HasField("client")
    assert podium.TrainableModel(name="n", base_model="m").spec.base_model == "m"
    with pytest.raises(InvalidArgumentError, match="did you mean 'learning_rate'"):
        podium.TrainableModel(name="n", spec={"training": {"lr": 1}})
    with pytest.raises(InvalidArgumentError, match="takes an alias"):
        podium.TrainableModel(name="n", spec={"fork": {"model": "m", "version": "best"}})


async def test_train_follows_to_the_end_and_says_what_came(
    fake: FakePodium, client: AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await client.train(TYPED, job_id="v")
    assert (run.id, run.best_version) == ("v", None)
    assert [evaluation.version for evaluation in run.evaluations] == [
        job_records.evaluations()[2].version
    ]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "running"
    assert lines[1].startswith("step 1/3  reward ")
    assert lines[-2].startswith("evaluation of version ")
    fake.registry.publish("q", 2, {"adapter/a": b"x"}).aliases.append("best")
    run = await client.train(TYPED, job_id="q", progress=False)
    assert run.best_version == 2
    assert run.metrics == dict(fake.jobs.known["q"].latest_metrics)
    assert capsys.readouterr() == ("", "")


async def test_train_shows_a_bar_in_a_notebook(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = notebook(monkeypatch)
    await client.train(TYPED, job_id="v")
    assert cell.displays[0].startswith(f"training v {'━' * 30} 3/3  reward ")
    assert capsys.readouterr().out.splitlines()[0] == "running"


async def test_train_may_leave_the_job_alone(fake: FakePodium, client: AsyncClient) -> None:
    fake.jobs.created_state = jobs.JOB_STATE_QUEUED
    run = await client.train(VALUES, follow=False)
    assert run.job.state == jobs.JOB_STATE_QUEUED
    assert not fake.jobs.watched_after
    assert run.metrics == {}
    fake.jobs.hold_watch = True
    with pytest.raises(DeadlineExceededError, match="it goes on") as caught:
        await client.train(VALUES, job_id="held", within=0.05, progress=False)
    assert caught.value.metadata["job_id"] == "held"


@pytest.mark.parametrize(
    ("state", "reason"),
    [(jobs.JOB_STATE_FAILED, "JOB_FAILED"), (jobs.JOB_STATE_CANCELLED, "JOB_CANCELLED")],
)
async def test_a_job_that_fails_raises(
    fake: FakePodium, client: AsyncClient, state: Any, reason: str
) -> None:
    fake.jobs.created_state = state
    with pytest.raises(FailedPreconditionError, match="job v") as caught:
        await client.train(TYPED, job_id="v", progress=False)
    assert caught.value.reason == reason
    assert caught.value.metadata["job_id"] == "v"


async def test_a_job_that_is_no_longer_followed_is_said_to_go_on(
    fake: FakePodium, client: AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.jobs.hold_watch = True
    training = asyncio.ensure_future(client.train(TYPED, job_id="v"))
    while not fake.jobs.watched_after:
        await asyncio.sleep(0)
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training
    assert capsys.readouterr().err.endswith("job v is no longer followed; it goes on\n")


def test_train_talks_to_the_installation_that_is_named() -> None:
    from podium.sdk import Addresses

    with pytest.raises(UnavailableError, match=r"controller at 127\.0\.0\.1:1 cannot be reached"):
        podium.train(TYPED, addresses=Addresses(controller="127.0.0.1:1"))
