"""The job of `podium train`: from which file, under which id, and which one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.cli.exits import CliError
from podium.cli.train import job as train_job
from podium.cli.train.job import begin, free_id, patiently, read_spec
from podium.core.contract import apply_defaults
from podium.core.errors import UnavailableError
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import AsyncClient
from podium.types.v1 import spec_pb2
from support.fake_podium import FakePodium

FILE = "base_model: m\nenvironment: {name: mytask}\ntraining: {steps: 4}\n"


def test_job_yaml_beside_the_task_is_taken_and_settings_go_over_it(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FILE)
    spec = read_spec(None, tmp_path, "mytask", ["training.steps=2", "base_model=org/x"])
    assert (spec.training.steps, spec.base_model) == (2, "org/x")


def test_without_a_file_it_trains_as_init_has_it(tmp_path: Path) -> None:
    spec = read_spec(None, tmp_path, "other", ["training.steps=3"])
    assert (spec.environment.name, spec.training.steps) == ("other", 3)
    assert spec.base_model == "smollm2-135m-instruct"
    assert spec.evaluation.greedy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            FILE.replace("mytask", "thine"),
            "environment.name is 'thine', and the task's is 'mytask'",
        ),
        (
            FILE.replace("name: mytask", "name: mytask, address: 'h:1'"),
            "environment.address is set",
        ),
        (FILE.replace("name: mytask", "name: mytask, image: r/g:1"), "environment.image is set"),
        (FILE.replace("steps", "stops"), "did you mean 'steps'"),
    ],
)
def test_a_file_that_does_not_fit_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(CliError, match=said):
        read_spec(None, tmp_path, "mytask", [])


def test_ids_follow_each_other() -> None:
    assert free_id("my_task", set()) == "my-task"
    assert free_id("my_task", {"my-task", "my-task-2"}) == "my-task-3"
    assert free_id("2048", set()) == "task-2048"
    assert free_id("___", set()) == "job"


def spec_of(steps: int = 4) -> spec_pb2.JobSpec:
    spec = spec_pb2.JobSpec(base_model="m")
    spec.environment.name, spec.environment.address = "mytask", "127.0.0.1:7"
    spec.training.steps = steps
    return spec


def known(fake: FakePodium, state: jobs.JobState.ValueType, steps: int = 4) -> jobs.Job:
    job = jobs.Job(id="mytask", spec=spec_of(steps), state=state, completed_steps=1)
    apply_defaults(job.spec)
    fake.jobs.known[job.id] = job
    return job


@pytest.mark.parametrize("state", [jobs.JOB_STATE_RUNNING, jobs.JOB_STATE_PAUSED])
async def test_an_unfinished_job_goes_on(fake: FakePodium, state: jobs.JobState.ValueType) -> None:
    known(fake, state)
    async with AsyncClient(fake.addresses) as client:
        job = await begin(client, spec_of(), new=False)
    assert job.id == "mytask"
    assert list(fake.jobs.known) == ["mytask"]
    assert fake.jobs.known["mytask"].state in (jobs.JOB_STATE_RUNNING, jobs.JOB_STATE_QUEUED)


async def test_one_with_other_settings_is_not_gone_on_with_unasked(fake: FakePodium) -> None:
    known(fake, jobs.JOB_STATE_RUNNING)
    async with AsyncClient(fake.addresses) as client:
        with pytest.raises(CliError, match=r"unfinished \(1 of 4 steps\) and has other settings"):
            await begin(client, spec_of(steps=9), new=False)
        assert list(fake.jobs.known) == ["mytask"]
        job = await begin(client, spec_of(steps=9), new=True)
    assert job.id == "mytask-2"
    assert fake.jobs.known["mytask"].state == jobs.JOB_STATE_CANCELLING


async def test_a_finished_job_and_another_tasks_are_left_alone(fake: FakePodium) -> None:
    known(fake, jobs.JOB_STATE_SUCCEEDED)
    other = known(fake, jobs.JOB_STATE_RUNNING)
    fake.jobs.known = {"mytask": known(fake, jobs.JOB_STATE_SUCCEEDED), "theirs": other}
    other.id, other.spec.environment.address = "theirs", "127.0.0.1:8"
    async with AsyncClient(fake.addresses) as client:
        assert (await begin(client, spec_of(), new=False)).id == "mytask-2"
    assert other.state == jobs.JOB_STATE_RUNNING


async def test_an_engine_that_the_controller_does_not_reach_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gone on with, a job had it knock before the engine was ready, and gRPC backs off."""
    monkeypatch.setattr(train_job, "_AGAIN_SECONDS", 0)
    answers = iter([UnavailableError("no pool"), UnavailableError("no pool"), jobs.Job(id="j")])

    async def call() -> jobs.Job:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert (await patiently(call)).id == "j"
    monkeypatch.setattr(train_job, "PATIENCE_SECONDS", -1.0)
    answers = iter([UnavailableError("no pool")])
    with pytest.raises(UnavailableError):
        await patiently(call)
