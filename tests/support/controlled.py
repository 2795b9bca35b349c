"""A real controller over a fleet, in this process, and a client that follows its jobs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from podium.core.errors import DeadlineExceededError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2_grpc as pb_grpc
from podium.jobs.v1 import session_service_pb2_grpc
from podium.kit.rpc import Server, connect, rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.service import controller
from podium_controller.settings import Settings
from support.empty_database import empty_database
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.pretended import trained_weights

ENDED = {pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED}
GROUPS, ATTEMPTS = 3, 4


def small_job(steps: int = 3, **changes: Any) -> spec_pb2.JobSpec:
    """Three groups of four attempts a step, without evaluation; of a fixed set."""
    staleness = changes.pop("max_staleness", 0)
    fixed = staleness and "client" not in changes
    order = changes.pop("group_order", spec_pb2.GROUP_ORDER_FIXED if fixed else None)
    return spec_pb2.JobSpec(
        **{
            "base_model": BASE_MODEL,
            "environment": spec_pb2.EnvironmentSpec(name="double"),
            "rollout": spec_pb2.RolloutSpec(
                group_size=ATTEMPTS,
                groups_per_step=GROUPS,
                max_concurrent_groups=2,
                max_staleness=staleness,
                group_order=order,
            ),
            "training": spec_pb2.TrainingSpec(steps=steps),
            "seed": 11,
            "recovery_timeout_seconds": 60,
            **changes,
        }
    )


class Client:
    """JobService with short names. A lost controller is waited for where that is meant."""

    every = 0.05
    """How often it looks for what it waits for, in seconds."""
    within = 200.0
    """How long it waits, in seconds."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = connect(address)
        self.stub: pb_grpc.JobServiceAsyncStub = pb_grpc.JobServiceStub(self.channel)
        self.sessions: session_service_pb2_grpc.SessionServiceAsyncStub = (
            session_service_pb2_grpc.SessionServiceStub(self.channel)
        )

    async def create(self, spec: spec_pb2.JobSpec, job_id: str = "", **fields: Any) -> pb.Job:
        fields = {"request_id": uuid.uuid4().hex, **fields}
        request = pb.CreateJobRequest(job=pb.Job(id=job_id, spec=spec), **fields)
        with rpc_errors("controller"):
            return (await self.stub.CreateJob(request)).job

    async def get(self, job_id: str) -> pb.Job:
        with rpc_errors("controller"):
            return (await self.stub.GetJob(pb.GetJobRequest(job_id=job_id))).job

    async def cancel(self, job_id: str) -> pb.Job:
        with rpc_errors("controller"):
            return (await self.stub.CancelJob(pb.CancelJobRequest(job_id=job_id))).job

    async def pause(self, job_id: str) -> pb.Job:
        with rpc_errors("controller"):
            return (await self.stub.PauseJob(pb.PauseJobRequest(job_id=job_id))).job

    async def resume(self, job_id: str) -> pb.Job:
        with rpc_errors("controller"):
            return (await self.stub.ResumeJob(pb.ResumeJobRequest(job_id=job_id))).job

    async def events(self, job_id: str) -> list[pb.Event]:
        with rpc_errors("controller"):
            reply = await self.stub.ListEvents(pb.ListEventsRequest(job_id=job_id, page_size=1000))
        return list(reply.events)

    async def steps(self, job_id: str) -> list[pb.Step]:
        with rpc_errors("controller"):
            reply = await self.stub.ListSteps(pb.ListStepsRequest(job_id=job_id, page_size=1000))
        return list(reply.steps)

    async def evaluations(self, job_id: str) -> list[pb.Evaluation]:
        with rpc_errors("controller"):
            reply = await self.stub.ListEvaluations(pb.ListEvaluationsRequest(job_id=job_id))
        return list(reply.evaluations)

    async def trajectories(self, job_id: str, **only: Any) -> list[trajectory_pb2.Trajectory]:
        request = pb.ListTrajectoriesRequest(job_id=job_id, page_size=500, **only)
        with rpc_errors("controller"):
            return list((await self.stub.ListTrajectories(request)).trajectories)

    async def until(
        self,
        job_id: str,
        condition: Callable[[pb.Job], bool],
        within: float | None = None,
        every: float | None = None,
    ) -> pb.Job:
        """The job once the condition holds; through restarts of the controller."""
        job, within = pb.Job(), within or self.within
        try:
            async with asyncio.timeout(within):
                while True:
                    try:
                        job = await self.get(job_id)
                    except (UnavailableError, DeadlineExceededError):
                        pass
                    else:
                        if condition(job):
                            return job
                        assert job.state not in ENDED, (
                            f"{job.failure_reason}: {job.failure_message}"
                        )
                    await asyncio.sleep(every or self.every)
        except TimeoutError:
            raise AssertionError(f"did not happen within {within} seconds; {job}") from None

    async def state(self, job_id: str, *states: pb.JobState.ValueType) -> pb.Job:
        """The job once it is in one of the states."""
        return await self.until(job_id, lambda job: job.state in states)

    async def succeeded(self, job_id: str) -> pb.Job:
        """The job once it has succeeded."""
        return await self.state(job_id, pb.JOB_STATE_SUCCEEDED)


@asynccontextmanager
async def running_controller(
    fleet: Fleet, name: str = "in-process", **changes: Any
) -> AsyncIterator[Client]:
    """The controller, quick to poll, on a database of its own unless `database_url` names one."""
    settings = Settings(
        **{
            "port": 0,
            "health_port": 0,
            "metrics_port": 0,
            "data_dir": fleet.folder / name,
            "lease_seconds": 60.0,
            "poll_seconds": 0.1,
            "close_seconds": 3.0,
            **fleet.settings(),
            **changes,
        }
    )
    if not settings.database_url:
        await empty_database(settings.data_dir)
    server = Server("controller", settings)
    async with controller(server, settings):
        await server.start()
        client = Client(f"127.0.0.1:{server.port}")
        try:
            yield client
        finally:
            await client.channel.close()
            await server.stop(0)


async def assert_every_step_once(fleet: Fleet, client: Client, job_id: str, steps: int) -> None:
    """A row, a version, a set of groups and an update of the weights for each step, once each."""
    committed = await client.steps(job_id)
    assert [step.number for step in committed] == list(range(1, steps + 1))
    assert [step.version for step in committed] == list(range(1, steps + 1))
    for step in committed:
        assert list(step.group_ids) == [f"{job_id}/s{step.number}/g{i}" for i in range(GROUPS)]
    latest = await fleet.client.get_version(job_id, "latest")
    assert latest.manifest.version == steps
    for version in await fleet.client.list_versions(job_id):
        if version.manifest.version:
            own = committed[version.manifest.version - 1]
            assert list(version.manifest.group_ids) == list(own.group_ids)
    events = await client.events(job_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    told = [event.step for event in events if event.type == pb.EVENT_TYPE_STEP]
    assert told == list(range(1, steps + 1))
    trajectories = await client.trajectories(job_id)
    assert [trajectory.id for trajectory in trajectories] == [
        f"{job_id}/s{s}/g{g}/t{t}"
        for s in range(1, steps + 1)
        for g in range(GROUPS)
        for t in range(ATTEMPTS)
    ]
    seed = (await client.get(job_id)).spec.seed
    each = GROUPS * ATTEMPTS
    learned = [trajectories[at : at + each] for at in range(0, steps * each, each)]
    assert await fleet.weights_of(job_id, steps) == trained_weights(seed, learned)
