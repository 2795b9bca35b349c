"""Small jobs for tests, and a plain client that follows them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import grpc
from podium import AsyncClient
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.local.launcher import Launcher
from podium.sdk import Addresses
from podium.types.v1 import policy_pb2, spec_pb2

ENDED = {jobs.JOB_STATE_SUCCEEDED, jobs.JOB_STATE_FAILED, jobs.JOB_STATE_CANCELLED}


def small_spec(steps: int = 3, *, model: str = "smollm2-135m-instruct") -> spec_pb2.JobSpec:
    """Two groups of four short email-search episodes a step."""
    return spec_pb2.JobSpec(
        base_model=model,
        environment=spec_pb2.EnvironmentSpec(name="email_search"),
        rollout=spec_pb2.RolloutSpec(
            group_size=4,
            groups_per_step=2,
            sampling=policy_pb2.SamplingParams(max_tokens=16),
            episode=spec_pb2.EpisodeSpec(max_turns=2),
        ),
        training=spec_pb2.TrainingSpec(
            steps=steps, learning_rate=2e-4, lora=spec_pb2.LoraSpec(rank=4)
        ),
        seed=7,
        recovery_timeout_seconds=240,
    )


def client_of(stack: Launcher) -> AsyncClient:
    """The SDK's client of a stack's services."""
    names = ("controller", "registry", "inference", "rollout", "judge")
    return AsyncClient(Addresses(**{name: stack.address(name) for name in names}))


async def create(stub: jobs_grpc.JobServiceStub, spec: spec_pb2.JobSpec, job_id: str = "") -> str:
    """Creates a job with an id of its own and returns the id."""
    request = jobs.CreateJobRequest(
        job=jobs.Job(id=job_id, spec=spec), request_id=str(uuid.uuid4())
    )
    return (await stub.CreateJob(request, timeout=120)).job.id


async def wait_until(
    stub: jobs_grpc.JobServiceStub,
    job_id: str,
    condition: Callable[[jobs.Job], bool],
    *,
    within: float,
) -> jobs.Job:
    """Polls a job, through a controller that restarts, until the condition holds.

    Raises:
        TimeoutError: it does not within that many seconds.
        AssertionError: the job ends before it does.
    """
    async with asyncio.timeout(within):
        while True:
            try:
                job = (await stub.GetJob(jobs.GetJobRequest(job_id=job_id), timeout=5)).job
            except grpc.aio.AioRpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ):
                    raise
            else:
                if condition(job):
                    return job
                assert job.state not in ENDED, f"{job.failure_reason}: {job.failure_message}"
            await asyncio.sleep(0.2)


async def steps_of(stub: jobs_grpc.JobServiceStub, job_id: str) -> list[jobs.Step]:
    """Every committed step of a job."""
    request = jobs.ListStepsRequest(job_id=job_id, page_size=1000)
    return list((await stub.ListSteps(request, timeout=60)).steps)


async def at_the_base_model(stack: Launcher) -> None:
    """A pool of merged weights serves one job, or the base model: what was before goes."""
    async with client_of(stack) as client:
        for job in {policy.job async for policy in client.policies.list() if policy.job}:
            await client.policies.unload(job)
