"""Jobs whose groups come from their client: a real controller, the services it drives doubles."""

from __future__ import annotations

import pytest
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import retry_unavailable
from podium.types.v1 import spec_pb2
from support.controlled import Client, assert_every_step_once
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet
from support.full import full
from support.processes import ControllerProcess
from support.sessions import batch, client_job, finish, submit

__all__ = ["client", "fleet", "registry"]


async def steps_done(client: Client, job_id: str, steps: int) -> pb.Job:
    return await client.until(job_id, lambda job: job.completed_steps >= steps)


async def waits(client: Client, job_id: str) -> pb.Job:
    """The job once its first version is served and it waits for a batch."""
    return await client.until(
        job_id, lambda job: job.state == pb.JOB_STATE_RUNNING and job.phase == "collect"
    )


async def test_every_batch_is_a_step_and_the_last_one_ends_the_job(
    fleet: Fleet, client: Client
) -> None:
    job = await client.create(client_job(3))
    for step in range(1, 4):
        assert await submit(client, job.id, batch(job.id, step - 1)) == step
        await steps_done(client, job.id, step)
        assert fleet.inference.version == step
    await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 3)
    assert fleet.rollout.requests == []
    for trajectory in await client.trajectories(job.id):
        assert trajectory.reward == trajectory.environment_reward
        group = trajectory.group_id
        assert trajectory.scenario_id == f"scenario-{group.rpartition('g')[2]}"


async def test_finishing_trains_what_is_there_and_evaluates_the_last_version(
    fleet: Fleet, client: Client
) -> None:
    spec = client_job(100, evaluation=spec_pb2.EvaluationSpec())
    spec.environment.name = "double"
    job = await client.create(spec)
    await waits(client, job.id)
    hold = fleet.hold("step:begin", "1")
    await submit(client, job.id, batch(job.id, 0))
    await hold.reached()
    await finish(client, job.id)
    with pytest.raises(FailedPreconditionError) as late:
        await submit(client, job.id, batch(job.id, 0))
    assert late.value.reason == "JOB_FINISHING"
    hold.release()
    ended = await client.succeeded(job.id)
    assert ended.completed_steps == 1
    assert [e.version for e in await client.evaluations(job.id)] == [0, 1]
    assert (await finish(client, job.id)).state == pb.JOB_STATE_SUCCEEDED
    with pytest.raises(FailedPreconditionError) as ended_too:
        await submit(client, job.id, batch(job.id, 1))
    assert ended_too.value.reason == "JOB_ENDED"


async def test_a_batch_too_many_or_too_old_is_refused_as_a_status(
    fleet: Fleet, client: Client
) -> None:
    job = await client.create(client_job(4))
    hold = fleet.hold("step:begin", "1")
    await submit(client, job.id, batch(job.id, 0))
    await hold.reached()
    with pytest.raises(FailedPreconditionError) as pending:
        await submit(client, job.id, batch(job.id, 0))
    assert pending.value.reason == "BATCH_PENDING"
    hold.release()
    await steps_done(client, job.id, 1)
    with pytest.raises(FailedPreconditionError) as wrong:
        await submit(client, job.id, batch(job.id, 1), step=4)
    assert (wrong.value.reason, wrong.value.metadata["step"]) == ("WRONG_STEP", "2")
    for version, policy in ((0, job.id), (1, "another")):
        with pytest.raises(FailedPreconditionError) as stale:
            await submit(client, job.id, batch(policy, version))
        assert stale.value.reason == "STALE_BATCH"


async def test_bad_batches_are_refused_whole(fleet: Fleet, client: Client) -> None:
    job = await client.create(client_job(1))
    bad = batch(job.id, 0)
    bad[1].trajectories[2].histories[0].tokens.spans[0].length = 9
    bad[1].trajectories[3].environment_reward = float("nan")
    bad[2].scenario.id = "x"
    bad[2].ClearField("trajectories")
    with pytest.raises(InvalidArgumentError) as refused:
        await submit(client, job.id, bad)
    assert [violation.field for violation in refused.value.violations] == [
        "groups[1].trajectories[2].histories[0].tokens.spans[0]",
        "groups[1].trajectories[2].histories[0].tokens.logprobs",
        "groups[1].trajectories[3].environment_reward",
        "groups[2].trajectories",
    ]
    with pytest.raises(InvalidArgumentError, match="groups must follow"):
        await submit(client, job.id, [])
    with pytest.raises(NotFoundError):
        await submit(client, "nobody", batch("nobody", 0))
    assert await submit(client, job.id, batch(job.id, 0)) == 1
    await client.succeeded(job.id)


@pytest.mark.parametrize(
    ("point", "about"),
    [
        full("judge:end", "/s2/g1"),
        ("step:taken", "2"),
        full("save:published", "2"),
        full("load:end", "@2"),
    ],
)
async def test_t22_a_killed_controller_trains_a_batch_once(
    fleet: Fleet, point: str, about: str
) -> None:
    process = ControllerProcess(fleet)
    client = Client(process.address)
    try:
        await process.start()
        job = await client.create(client_job(3))
        await submit(client, job.id, batch(job.id, 0))
        await steps_done(client, job.id, 1)
        hold = fleet.hold(point, about)
        await submit(client, job.id, batch(job.id, 1), request_id="second")
        await hold.reached()
        process.kill()
        hold.release()
        await process.start()
        again = await retry_unavailable(
            lambda: submit(client, job.id, batch(job.id, 1), request_id="second"), timeout_s=120
        )
        assert again == 2
        await steps_done(client, job.id, 2)
        assert await submit(client, job.id, batch(job.id, 2)) == 3
        await client.succeeded(job.id)
        await assert_every_step_once(fleet, client, job.id, 3)
    finally:
        await client.channel.close()
        process.kill()
