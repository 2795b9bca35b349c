"""Jobs of projects with limits, from the queue to their end; on fakes of every port."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2
from podium_controller.api.trackers import Trackers
from podium_controller.pools.projects import ProjectLimits, Projects
from prometheus_client import REGISTRY
from support.controlled import ATTEMPTS, GROUPS, small_job
from support.memory_fleet import (
    MemoryClient,
    MemoryFleet,
    assert_every_step_once,
    memory_controller,
)
from support.waiting import eventually

MANY: dict[str, Any] = {"max_active_jobs": 8}
FREE = ProjectLimits()


@pytest.fixture
def fleet() -> MemoryFleet:
    """One pool of adapters, and room for many trainers."""
    made = MemoryFleet(adapters=True)
    made.trainer.rooms = 8
    return made


class Held:
    """Stops the collection of one job's groups."""

    def __init__(self, fleet: MemoryFleet, job_id: str) -> None:
        self._job_id = job_id
        self._release = asyncio.Event()
        self.groups = 0
        fleet.at = self

    async def __call__(self, point: str, about: str) -> None:
        if point == "collect:begin" and about.startswith(f"{self._job_id}/"):
            self.groups += 1
            await self._release.wait()

    def release(self) -> None:
        self._release.set()


def job_of(project: str) -> spec_pb2.JobSpec:
    return small_job(1, project=project)


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"podium_controller_{name}", labels)


async def waiting(client: MemoryClient, job_id: str) -> pb.Job:
    """The job once it says what it waits for."""
    return await client.until(job_id, lambda job: job.wait_reason != "")


async def listed(client: MemoryClient, project: str) -> list[str]:
    reply = await client.stub.ListJobs(pb.ListJobsRequest(project=project))
    return [job.id for job in reply.jobs]


async def test_a_project_above_its_jobs_waits_while_others_run(fleet: MemoryFleet) -> None:
    held = Held(fleet, "jobs-a1")
    limits = {"a": ProjectLimits(maxActiveJobs=1), "b": FREE}
    async with memory_controller(fleet, limits, **MANY) as client:
        await client.create(job_of("a"), "jobs-a1")
        await client.until("jobs-a1", lambda job: job.phase == "collect")
        await client.create(job_of("a"), "jobs-a2")
        told = await waiting(client, "jobs-a2")
        assert (told.state, told.wait_reason) == (pb.JOB_STATE_QUEUED, "PROJECT_ACTIVE_JOBS")
        assert "'a'" in told.wait_message
        assert "maxActiveJobs is 1" in told.wait_message
        for job, project in (("jobs-b", "b"), ("jobs-none", "")):
            spec = job_of(project) if project else small_job(1)
            created = await client.create(spec, job)
            assert created.spec.project == (project or "default")
            await client.succeeded(job)
        await eventually(lambda: shown("project_jobs", project="a", state="queued") == 1)
        assert shown("project_jobs", project="a", state="running") == 1
        assert shown("project_jobs", project="b", state="running") == 0
        held.release()
        assert (await client.succeeded("jobs-a2")).wait_reason == ""
        await assert_every_step_once(fleet, client, "jobs-a2", 1)
        assert await listed(client, "a") == ["jobs-a2", "jobs-a1"]
        assert await listed(client, "default") == ["jobs-none"]
        assert len(await listed(client, "")) == 4


async def test_a_project_above_its_gpus_waits_while_others_run(
    fleet: MemoryFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.trainers, "gpus", lambda spec: 4)
    held = Held(fleet, "gpus-a1")
    async with memory_controller(fleet, {"a": ProjectLimits(maxGpus=6)}, **MANY) as client:
        await client.create(job_of("a"), "gpus-a1")
        await client.until("gpus-a1", lambda job: job.phase == "collect")
        await client.create(job_of("a"), "gpus-a2")
        told = await waiting(client, "gpus-a2")
        assert told.wait_reason == "PROJECT_GPUS"
        assert "uses 4 GPUs and this job needs 4 more; its maxGpus is 6" in told.wait_message
        await client.succeeded((await client.create(small_job(1), "gpus-none")).id)
        assert shown("project_gpus", project="a") == 4
        held.release()
        await client.succeeded("gpus-a2")


async def test_a_job_without_its_projects_share_of_the_pool_says_so_and_goes_on(
    fleet: MemoryFleet,
) -> None:
    held = Held(fleet, "share-a1")
    limits = {"a": ProjectLimits(maxPoolShare=0.5)}
    # Of two groups at once the project has one.
    async with memory_controller(fleet, limits, pool_episodes=2 * ATTEMPTS, **MANY) as client:
        await client.create(job_of("a"), "share-a1")
        await eventually(lambda: held.groups == 1)
        await client.create(job_of("a"), "share-a2")
        told = await waiting(client, "share-a2")
        assert (told.state, told.wait_reason) == (pb.JOB_STATE_RUNNING, "PROJECT_POOL_SHARE")
        assert "maxPoolShare of 0.5" in told.wait_message
        await client.succeeded((await client.create(small_job(1), "share-none")).id)
        assert (fleet.watched_rollout.running, held.groups) == (1, 1)
        assert shown("pool_episodes", pool="default", project="a") == ATTEMPTS
        held.release()
        for job in ("share-a1", "share-a2"):
            assert (await client.succeeded(job)).wait_reason == ""
            await assert_every_step_once(fleet, client, job, 1)
    assert shown("pool_episodes", pool="default", project="a") == 0
    assert shown("pool_groups_waiting", pool="default") == 0


async def test_tokens_of_judges_are_shown_by_project_and_outlive_their_job(
    fleet: MemoryFleet,
) -> None:
    def of(project: str) -> float | None:
        return shown("project_judge_tokens", project=project)

    fleet.judge.usage = judge_pb.JudgeUsage(calls=1, prompt_tokens=100, completion_tokens=10)
    async with memory_controller(fleet) as client:
        await client.create(job_of("unnamed"), "tokens-u")
        await client.succeeded("tokens-u")
        # Without a file every name is a project, and no name of a user's is a label.
        await eventually(lambda: of("other") == 110 * GROUPS)
        assert (of("default"), of("unnamed")) == (0, None)
    async with memory_controller(fleet, {"a": FREE}) as client:
        await client.create(job_of("a"), "tokens-a")
        await client.succeeded("tokens-a")
        await eventually(lambda: of("a") == 110 * GROUPS)
        await client.stub.DeleteJob(pb.DeleteJobRequest(job_id="tokens-a"))
        fleet.judge.usage.Clear()
        await client.create(job_of("a"), "tokens-b")
        await client.succeeded("tokens-b")
        assert of("a") == 110 * GROUPS


async def test_a_project_cannot_name_another_s_secret_and_is_warned_that_nobody_tells(
    fleet: MemoryFleet, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text("of-a: {projects: [a]}\nshared: {}\n")
    limits = {"a": FREE, "b": FREE}
    trackers = Trackers.load(False, secrets, Projects(limits))
    async with memory_controller(fleet, limits, trackers) as client:
        tracking = spec_pb2.TrackingSpec(wandb=spec_pb2.WandbSpec(secret="of-a"))
        with pytest.raises(InvalidArgumentError) as refused:
            await client.create(small_job(1, project="b", tracking=tracking), "theirs")
        (violation,) = refused.value.violations
        assert violation.field == "job.spec.tracking.wandb.secret"
        assert "are shared" in violation.description
        job = small_job(1, project="a", tracking=tracking)
        request = pb.CreateJobRequest(job=pb.Job(id="own", spec=job))
        (warning,) = (await client.stub.CreateJob(request)).warnings
        assert "no tracking service" in warning
        told = [e.message for e in await client.events("own") if e.type == pb.EVENT_TYPE_WARNING]
        assert warning in told
        await client.succeeded("own")


async def test_a_project_that_has_used_its_budget_pauses_its_jobs_until_it_has_more(
    fleet: MemoryFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet.trainers, "gpus", lambda spec: 1000)

    def limits(hours: float) -> dict[str, ProjectLimits]:
        return {
            "poor": ProjectLimits(maxGpuHours=hours, maxJudgeCost=9.0),
            "grant": ProjectLimits(maxTotalGpuHours=hours, maxGpuHours=9.0),
            "rich": FREE,
        }

    async with memory_controller(fleet, limits(1e-6)) as client:
        await client.create(small_job(2, project="poor"), "poor-1")
        paused = await client.state("poor-1", pb.JOB_STATE_PAUSED)
        assert paused.wait_reason == "PROJECT_BUDGET_EXHAUSTED"
        assert "of the project 'poor' maxGpuHours is 1e-06" in paused.wait_message
        told = (await client.events("poor-1"))[-1].message
        assert told == f"the job is paused: {paused.wait_message}"
        # Of all time is another reason: no month helps.
        await client.create(small_job(2, project="grant"), "grant-1")
        paused = await client.state("grant-1", pb.JOB_STATE_PAUSED)
        assert paused.wait_reason == "PROJECT_TOTAL_BUDGET_EXHAUSTED"
        assert "of the project 'grant' maxTotalGpuHours is 1e-06" in paused.wait_message
        await client.resume("grant-1")
        waits = await waiting(client, "grant-1")
        assert waits.state == pb.JOB_STATE_QUEUED
        assert waits.wait_reason == "PROJECT_TOTAL_BUDGET_EXHAUSTED"
        # Trainer and pool are others'.
        await client.create(small_job(1, project="rich"), "rich-1")
        await client.succeeded("rich-1")
        # What is resumed, or new, waits in line, and is told why.
        await client.resume("poor-1")
        await client.create(small_job(1, project="poor"), "poor-2")
        for job_id in ("poor-1", "poor-2"):
            waits = await waiting(client, job_id)
            assert waits.state == pb.JOB_STATE_QUEUED
            assert waits.wait_reason == "PROJECT_BUDGET_EXHAUSTED"
    async with memory_controller(fleet, limits(1000.0)) as client:
        for job_id in ("poor-1", "poor-2", "grant-1"):
            await client.succeeded(job_id)
