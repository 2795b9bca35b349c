"""TrainingJobs become jobs, and say how they fare."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from podium.core.errors import FailedPreconditionError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_gitops.operator import Operator
from support.training_jobs import JOB, Jobs, Resources


@pytest.fixture
def resources() -> Resources:
    return Resources()


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
async def operator(resources: Resources, jobs: Jobs) -> AsyncIterator[Operator]:
    made = Operator(resources, jobs, 0.02)  # type: ignore[arg-type]
    async with made.running():
        yield made


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def accepted(resources: Resources, name: str) -> None:
    await until(lambda: "jobId" in resources.status(name))


@pytest.mark.usefixtures("operator")
async def test_a_resource_becomes_a_job_of_its_name_once(resources: Resources, jobs: Jobs) -> None:
    resources.apply("search", JOB)
    await accepted(resources, "search")
    assert jobs.calls == ["create search"]
    assert jobs.jobs["search"].spec.training.steps == 3
    assert jobs.requests["search"].startswith("uid-search")
    assert resources.status("search")["state"] == "Queued"
    assert resources.condition("search")["status"] == "True"


@pytest.mark.usefixtures("operator")
async def test_the_status_follows_the_job_and_rests_with_it(
    resources: Resources, jobs: Jobs
) -> None:
    resources.apply("search", JOB)
    await accepted(resources, "search")
    job = jobs.jobs["search"]
    job.state, job.completed_steps, job.phase = pb.JOB_STATE_RUNNING, 2, "train"
    job.latest_metrics["reward_mean"] = 0.25
    job.wait_reason, job.wait_message = "TRAINER_UNSCHEDULABLE", "0/1 nodes"
    await until(lambda: resources.status("search").get("completedSteps") == 2)
    status = resources.status("search")
    assert (status["state"], status["phase"], status["reward"]) == ("Running", "train", "0.25")
    assert (status["reason"], status["message"]) == ("TRAINER_UNSCHEDULABLE", "0/1 nodes")
    job.wait_reason = job.wait_message = ""
    job.state = pb.JOB_STATE_SUCCEEDED
    await until(lambda: resources.status("search")["state"] == "Succeeded")
    # What is no more so is not left there.
    assert "reason" not in resources.status("search")
    written = resources.patches
    await asyncio.sleep(0.2)
    assert resources.patches == written


@pytest.mark.usefixtures("operator")
async def test_every_violation_is_told_and_a_change_is_tried_again(
    resources: Resources, jobs: Jobs
) -> None:
    resources.apply("search", {**JOB, "training": {"steps": 0, "step": 1}})
    await until(lambda: "conditions" in resources.status("search"))
    condition = resources.condition("search")
    assert (condition["status"], condition["reason"]) == ("False", "INVALID_ARGUMENT")
    assert "spec.job.training.steps" in condition["message"]
    assert "did you mean" in condition["message"]
    assert jobs.calls == []
    resources.apply("search", JOB)
    await accepted(resources, "search")
    assert resources.condition("search")["status"] == "True"


@pytest.mark.usefixtures("operator")
async def test_what_may_change_is_tried_until_it_does(resources: Resources, jobs: Jobs) -> None:
    jobs.fault = FailedPreconditionError("no pool serves it", reason="BASE_MODEL_NOT_SERVED")
    resources.apply("search", JOB)
    await until(lambda: len(jobs.calls) > 2)
    assert resources.condition("search")["reason"] == "BASE_MODEL_NOT_SERVED"
    jobs.fault = None
    await accepted(resources, "search")


@pytest.mark.usefixtures("operator")
async def test_anothers_job_is_left_alone(resources: Resources, jobs: Jobs) -> None:
    jobs.jobs["search"] = pb.Job(id="search", state=pb.JOB_STATE_RUNNING)
    resources.apply("search", JOB)
    await until(lambda: "conditions" in resources.status("search"))
    assert resources.condition("search")["reason"] == "JOB_EXISTS"
    resources.delete("search")
    await until(lambda: "search" not in resources.items)
    assert jobs.jobs["search"].state == pb.JOB_STATE_RUNNING


@pytest.mark.usefixtures("operator")
async def test_deleting_cancels_the_job_and_waits_for_its_end(
    resources: Resources, jobs: Jobs
) -> None:
    resources.apply("search", JOB)
    await accepted(resources, "search")
    resources.delete("search")
    await until(lambda: "cancel search" in jobs.calls)
    await asyncio.sleep(0.1)
    assert "search" in resources.items
    jobs.jobs["search"].state = pb.JOB_STATE_CANCELLED
    await until(lambda: "search" not in resources.items)


@pytest.mark.usefixtures("operator")
async def test_a_changed_job_is_refused_and_goes_on_as_it_was(
    resources: Resources, jobs: Jobs
) -> None:
    resources.apply("search", JOB)
    await accepted(resources, "search")
    resources.apply("search", {**JOB, "training": {"steps": 9}})
    await until(lambda: resources.condition("search")["reason"] == "SPEC_CHANGED")
    jobs.jobs["search"].completed_steps = 1
    await until(lambda: resources.status("search").get("completedSteps") == 1)
    resources.apply("search", JOB)
    await until(lambda: resources.condition("search")["status"] == "True")
    assert jobs.calls == ["create search"]


@pytest.mark.usefixtures("operator")
async def test_paused_means_paused(resources: Resources, jobs: Jobs) -> None:
    resources.apply("search", JOB)
    await accepted(resources, "search")
    resources.apply("search", JOB, paused=True)
    await until(lambda: resources.status("search")["state"] == "Paused")
    resources.apply("search", JOB, paused=False)
    await until(lambda: resources.status("search")["state"] == "Queued")
    # A job whose client is silent paused by itself, and its client wakes it.
    jobs.jobs["search"].state, jobs.jobs["search"].phase = pb.JOB_STATE_PAUSED, "idle"
    await until(lambda: resources.status("search")["state"] == "Paused")
    assert jobs.calls.count("resume search") == 1


@pytest.mark.usefixtures("operator")
async def test_a_job_that_was_deleted_is_not_made_again(resources: Resources, jobs: Jobs) -> None:
    resources.apply("search", JOB)
    await accepted(resources, "search")
    del jobs.jobs["search"]
    await until(lambda: resources.condition("search")["reason"] == "JOB_DELETED")
    assert jobs.calls == ["create search"]
