"""Projects: a real controller with limits from a file, on doubles over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from podium_controller.grpc_peers.peers import FixedTrainer
from prometheus_client import REGISTRY
from support.controlled import (
    ATTEMPTS,
    Client,
    assert_every_step_once,
    running_controller,
    small_job,
)
from support.fake_judge import fake_judge, scores
from support.fleet import Fleet, fleet_of_doubles
from support.processes import RegistryProcess, running_registry
from support.waiting import eventually


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def fleet(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    """One pool of adapters, and room for many trainers."""
    async with fleet_of_doubles(registry) as running:
        running.trainer.rooms = 8
        running.inference.adapters = True
        yield running


def limits(folder: Path, text: str) -> dict[str, Any]:
    """Settings of a controller with these projects."""
    path = folder / "projects.yaml"
    path.write_text(text)
    return {"projects_file": path, "max_active_jobs": 8}


class Held:
    """Stops the collection of one job's groups."""

    def __init__(self, fleet: Fleet, job_id: str) -> None:
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


def job_of(project: str, steps: int = 1) -> spec_pb2.JobSpec:
    return small_job(steps, project=project)


def shown(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"podium_controller_{name}", labels)


async def listed(client: Client, project: str) -> list[str]:
    with rpc_errors("controller"):
        reply = await client.stub.ListJobs(pb.ListJobsRequest(project=project))
    return [job.id for job in reply.jobs]


async def test_a_project_above_its_jobs_waits_while_others_run(
    fleet: Fleet, tmp_path: Path
) -> None:
    held = Held(fleet, "jobs-a1")
    settings = limits(tmp_path, "a: {maxActiveJobs: 1}\nb: {}\n")
    async with running_controller(fleet, **settings) as client:
        await client.create(job_of("a"), "jobs-a1")
        await client.until("jobs-a1", lambda j: j.phase == "collect")
        await client.create(job_of("a"), "jobs-a2")
        waiting = await client.until("jobs-a2", lambda j: j.wait_reason != "")
        assert (waiting.state, waiting.wait_reason) == (
            pb.JOB_STATE_QUEUED,
            "PROJECT_ACTIVE_JOBS",
        )
        assert "'a'" in waiting.wait_message
        assert "maxActiveJobs is 1" in waiting.wait_message
        for job, project in (("jobs-b", "b"), ("jobs-none", "")):
            spec = job_of(project) if project else small_job(1)
            created = await client.create(spec, job)
            assert created.spec.project == (project or "default")
            await client.succeeded(job)
        expected = {("a", "queued"): 1, ("a", "running"): 1, ("b", "running"): 0}

        def counted() -> dict[tuple[str, str], float | None]:
            return {
                (project, state): shown("project_jobs", project=project, state=state)
                for project, state in expected
            }

        await eventually(lambda: counted() == expected)
        held.release()
        done = await client.succeeded("jobs-a2")
        assert done.wait_reason == ""
        await assert_every_step_once(fleet, client, "jobs-a2", 1)
        assert await listed(client, "a") == ["jobs-a2", "jobs-a1"]
        assert await listed(client, "default") == ["jobs-none"]
        assert len(await listed(client, "")) == 4


async def test_tokens_of_judges_are_shown_by_project_and_outlive_their_job(
    fleet: Fleet, tmp_path: Path
) -> None:
    def of(project: str) -> float | None:
        return shown("project_judge_tokens", project=project)

    with fake_judge() as model:
        model.then(scores(lambda text: len(text) / 1000))
        ruler = spec_pb2.RulerSpec(base_url=model.base_url, model="m")
        scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
        reward = spec_pb2.RewardSpec(scorers=[scorer])
        async with running_controller(fleet, "tokens") as client:
            await client.create(small_job(1, project="unnamed", reward=reward), "tokens-u")
            await client.succeeded("tokens-u")
            # Without a file every name is a project, and no name of a user's is a label.
            await eventually(lambda: of("other") == 110 * len(model.requests) > 0)
            assert (of("default"), of("unnamed")) == (0, None)
        settings = limits(tmp_path, "a: {}\n")
        async with running_controller(fleet, "tokens-of-a", **settings) as client:
            before = len(model.requests)
            await client.create(small_job(1, project="a", reward=reward), "tokens-a")
            await client.succeeded("tokens-a")
            used = 110 * (len(model.requests) - before)
            await eventually(lambda: of("a") == used > 0)
            with rpc_errors("controller"):
                await client.stub.DeleteJob(pb.DeleteJobRequest(job_id="tokens-a"))
            await client.create(job_of("a"), "tokens-b")
            await client.succeeded("tokens-b")
            assert of("a") == used


async def test_a_project_that_the_file_does_not_name_is_refused(
    fleet: Fleet, tmp_path: Path
) -> None:
    async with running_controller(fleet, **limits(tmp_path, "a: {}\n")) as client:
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job_of("other"))
        (violation,) = raised.value.violations
        assert violation.field == "job.spec.project"
        assert violation.description == "got 'other'; allowed are a, default"
        with pytest.raises(InvalidArgumentError) as raised:
            await client.create(job_of("No Name"))
        assert raised.value.violations[0].field == "job.spec.project"
    async with running_controller(fleet, "without-a-file") as client:
        await client.create(job_of("other"), validate_only=True)


@pytest.mark.full
async def test_a_project_above_its_gpus_waits_while_others_run(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FixedTrainer, "gpus", lambda self, spec: 4)
    held = Held(fleet, "gpus-a1")
    settings = limits(tmp_path, "a: {maxGpus: 6}\n")
    async with running_controller(fleet, **settings) as client:
        await client.create(job_of("a"), "gpus-a1")
        await client.until("gpus-a1", lambda j: j.phase == "collect")
        await client.create(job_of("a"), "gpus-a2")
        waiting = await client.until("gpus-a2", lambda j: j.wait_reason != "")
        assert waiting.wait_reason == "PROJECT_GPUS"
        assert "uses 4 GPUs and this job needs 4 more; its maxGpus is 6" in waiting.wait_message
        await client.succeeded((await client.create(small_job(1), "gpus-none")).id)
        assert shown("project_gpus", project="a") == 4
        held.release()
        await client.succeeded("gpus-a2")


async def test_a_job_without_its_projects_share_of_the_pool_says_so_and_goes_on(
    fleet: Fleet, tmp_path: Path
) -> None:
    held = Held(fleet, "share-a1")
    settings = limits(tmp_path, "a: {maxPoolShare: 0.5}\n")
    # Of two groups at once the project has one.
    async with running_controller(fleet, pool_episodes=2 * ATTEMPTS, **settings) as client:
        await client.create(job_of("a"), "share-a1")
        await eventually(lambda: held.groups == 1)
        await client.create(job_of("a"), "share-a2")
        waiting = await client.until("share-a2", lambda j: j.wait_reason != "")
        assert (waiting.state, waiting.wait_reason) == (
            pb.JOB_STATE_RUNNING,
            "PROJECT_POOL_SHARE",
        )
        assert "maxPoolShare of 0.5" in waiting.wait_message
        await client.succeeded((await client.create(small_job(1), "share-none")).id)
        assert (fleet.rollout.running, held.groups) == (1, 1)
        assert shown("pool_episodes", pool="default", project="a") == ATTEMPTS
        held.release()
        for job in ("share-a1", "share-a2"):
            assert (await client.succeeded(job)).wait_reason == ""
            await assert_every_step_once(fleet, client, job, 1)
    assert shown("pool_episodes", pool="default", project="a") == 0
    assert shown("pool_groups_waiting", pool="default") == 0


async def test_a_project_cannot_name_another_s_secret_and_is_warned_that_nobody_tells(
    fleet: Fleet, tmp_path: Path
) -> None:
    secrets = tmp_path / "secrets.yaml"
    secrets.write_text("of-a: {projects: [a]}\nshared: {}\n")
    settings = limits(tmp_path, "a: {}\nb: {}\n")
    settings |= {"tracking_secrets_file": secrets, "tracking": False}
    async with running_controller(fleet, "trackers", **settings) as client:
        tracking = spec_pb2.TrackingSpec(wandb=spec_pb2.WandbSpec(secret="of-a"))
        with pytest.raises(InvalidArgumentError, match="are shared") as refused:
            await client.create(small_job(1, project="b", tracking=tracking), "theirs")
        (violation,) = refused.value.violations
        assert violation.field == "job.spec.tracking.wandb.secret"
        job = small_job(1, project="a", tracking=tracking)
        request = pb.CreateJobRequest(job=pb.Job(id="own", spec=job))
        with rpc_errors("controller"):
            (warning,) = (await client.stub.CreateJob(request)).warnings
        assert "no tracking service" in warning
        told = [e.message for e in await client.events("own") if e.type == pb.EVENT_TYPE_WARNING]
        assert warning in told
        await client.succeeded("own")
