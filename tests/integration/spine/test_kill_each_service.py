"""`kill -9` of any one of the six processes: the job ends with every step exactly once.

The trainer's with the real model, whose steps are long enough to be in the middle of one.
"""

from __future__ import annotations

import asyncio
import os
import signal

import grpc
import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.local.launcher import Launcher
from podium.registry.v1 import registry_service_pb2 as registry
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.types.v1 import trajectory_pb2
from support.jobs import create, small_spec, steps_of, wait_until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.full,
    pytest.mark.timeout(600),
]

REAL_STEPS = 2
# A step of the tiny model takes a second: so many that it does not end before the kill.
TINY_STEPS = 12


async def test_a_job_survives_the_loss_of_its_trainer(real_stack: Launcher) -> None:
    await survives_the_loss_of("trainer", real_stack, REAL_STEPS)


@pytest.mark.parametrize("service", ["rollout", "judge", "registry", "controller", "inference"])
async def test_job_survives_the_loss_of(service: str, stack: Launcher) -> None:
    await survives_the_loss_of(service, stack, TINY_STEPS)


async def survives_the_loss_of(service: str, stack: Launcher, count: int) -> None:
    async with grpc.aio.insecure_channel(stack.address("controller")) as channel:
        stub = jobs_grpc.JobServiceStub(channel)
        job_id = await create(stub, small_spec(count, model=stack.config.model), f"kill-{service}")
        # One step in, so that there is something to lose and something to repeat.
        await wait_until(stub, job_id, lambda job: job.completed_steps >= 1, within=300)
        # Into the phase in which the service is at work, where that can be seen.
        busy = {"trainer": "train", "judge": "judge", "rollout": "collect", "inference": "collect"}
        if service in busy:
            await wait_until(
                stub,
                job_id,
                lambda job: job.phase == busy[service] or job.completed_steps >= 2,
                within=60,
            )
        restarts = stack.restarts(service)
        os.kill(stack.pid(service), signal.SIGKILL)
        async with asyncio.timeout(60):
            while stack.restarts(service) == restarts:
                await asyncio.sleep(0.05)
        await stack.wait_ready(service, within=180)
        assert stack.restarts(service) == restarts + 1
        job = await wait_until(
            stub, job_id, lambda job: job.state == jobs.JOB_STATE_SUCCEEDED, within=400
        )
        assert job.completed_steps == count
        steps = await steps_of(stub, job_id)
        await assert_every_step_once(stack, stub, job_id, steps, count)
        if service == "trainer":
            listed = await stub.ListEvents(jobs.ListEventsRequest(job_id=job_id), timeout=30)
            told = [event.message for event in listed.events]
            assert any(message.startswith("trainer is lost (") for message in told), told
            assert any("trainer is back after" in message for message in told), told


async def assert_every_step_once(
    stack: Launcher,
    stub: jobs_grpc.JobServiceStub,
    job_id: str,
    steps: list[jobs.Step],
    count: int,
) -> None:
    assert [step.number for step in steps] == list(range(1, count + 1))
    assert [step.version for step in steps] == list(range(1, count + 1))
    consumed = [group for step in steps for group in step.group_ids]
    assert len(consumed) == len(set(consumed)) == 2 * count

    async with grpc.aio.insecure_channel(stack.address("registry")) as channel:
        registry_stub = registry_grpc.RegistryServiceStub(channel)
        reply = await registry_stub.GetVersion(
            registry.GetVersionRequest(model=job_id, alias="latest"), timeout=10
        )
        assert reply.version.manifest.version == count
        assert list(reply.version.manifest.group_ids) == list(steps[-1].group_ids)

    listed = await stub.ListTrajectories(
        jobs.ListTrajectoriesRequest(job_id=job_id, page_size=500), timeout=30
    )
    ids = [trajectory.id for trajectory in listed.trajectories]
    assert len(ids) == len(set(ids)) == 4 * 2 * count
    for trajectory in listed.trajectories:
        assert trajectory.stop_reason != trajectory_pb2.STOP_REASON_FAILED, trajectory.failure
        step = int(trajectory.group_id.split("/s")[1].split("/")[0])
        spans = [s for h in trajectory.histories for s in h.tokens.spans]
        # Strictly on-policy: step s samples from the weights after step s - 1.
        assert {span.weights_version for span in spans} == {step - 1}
