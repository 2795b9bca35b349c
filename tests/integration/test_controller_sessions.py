"""Jobs whose groups come from their client: a real controller, the services it drives doubles."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import connect, retry_unavailable
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.controlled import Client, assert_every_step_once, small_job
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


async def test_t21_a_batch_sent_twice_is_one_step(fleet: Fleet, client: Client) -> None:
    job = await client.create(client_job(2))
    first = batch(job.id, 0)
    assert await submit(client, job.id, first, request_id="one") == 1
    assert await submit(client, job.id, first, request_id="one") == 1
    await steps_done(client, job.id, 1)
    assert await submit(client, job.id, first, request_id="one") == 1
    with pytest.raises(AlreadyExistsError) as reused:
        await submit(client, job.id, batch(job.id, 1), request_id="one")
    assert reused.value.reason == "REQUEST_ID_REUSED"
    assert await submit(client, job.id, batch(job.id, 1), request_id="two", step=2) == 2
    await client.succeeded(job.id)
    assert await submit(client, job.id, first, request_id="one") == 1
    assert fleet.trainer.taken == [(job.id, 1), (job.id, 2)]


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


async def test_a_silent_client_costs_no_trainer_and_is_heard_again(
    fleet: Fleet, client: Client
) -> None:
    spec = client_job(2)
    spec.client.idle_seconds = 0.3
    job = await client.create(spec)
    idle = await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert idle.phase == "idle"
    assert fleet.trainer.job == ""
    # It can still be sampled from.
    assert (fleet.inference.job, fleet.inference.version) == (job.id, 0)
    await submit(client, job.id, batch(job.id, 0))
    await steps_done(client, job.id, 1)
    await client.state(job.id, pb.JOB_STATE_PAUSED)
    # From here on it is paused because nobody was heard again.
    assert (await client.resume(job.id)).state == pb.JOB_STATE_QUEUED
    await client.state(job.id, pb.JOB_STATE_PAUSED)
    await finish(client, job.id)
    assert (await client.succeeded(job.id)).completed_steps == 1


async def test_what_people_paused_stays_paused(fleet: Fleet, client: Client) -> None:
    job = await client.create(client_job(1))
    await waits(client, job.id)
    await client.pause(job.id)
    paused = await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert paused.phase == "wait"
    await submit(client, job.id, batch(job.id, 0))
    await asyncio.sleep(0.5)
    assert (await client.get(job.id)).state == pb.JOB_STATE_PAUSED
    await client.resume(job.id)
    await client.succeeded(job.id)


async def test_cancelling_ends_the_wait(client: Client) -> None:
    job = await client.create(client_job(1))
    await waits(client, job.id)
    await client.cancel(job.id)
    await client.state(job.id, pb.JOB_STATE_CANCELLED)
    with pytest.raises(FailedPreconditionError) as ended:
        await finish(client, job.id)
    assert ended.value.reason == "JOB_ENDED"


@pytest.mark.parametrize("ahead", [1, full(0)])
async def test_how_far_a_client_may_run_ahead(fleet: Fleet, client: Client, ahead: int) -> None:
    job = await client.create(client_job(4, max_staleness=ahead))
    hold = fleet.hold("step:begin", "1")
    await submit(client, job.id, batch(job.id, 0))
    await hold.reached()
    if ahead:
        assert await submit(client, job.id, batch(job.id, 0)) == 2
    with pytest.raises(FailedPreconditionError) as pending:
        await submit(client, job.id, batch(job.id, 0))
    assert pending.value.reason == "BATCH_PENDING"
    hold.release()
    await steps_done(client, job.id, 1 + ahead)
    with pytest.raises(FailedPreconditionError) as wrong:
        await submit(client, job.id, batch(job.id, 1 + ahead), step=4)
    assert (wrong.value.reason, wrong.value.metadata["step"]) == ("WRONG_STEP", str(2 + ahead))
    for version, policy in ((0, job.id), (1 + ahead, "another")):
        with pytest.raises(FailedPreconditionError) as stale:
            await submit(client, job.id, batch(policy, version))
        assert stale.value.reason == "STALE_BATCH"


async def test_a_group_in_which_all_failed_is_a_step_that_learns_nothing(client: Client) -> None:
    job = await client.create(client_job(1))
    groups = batch(job.id, 0, groups=1)
    for trajectory in groups[0].trajectories:
        trajectory.ClearField("environment_reward")
        trajectory.stop_reason = trajectory_pb2.STOP_REASON_FAILED
        trajectory.failure.type = "KeyError"
    await submit(client, job.id, groups)
    await client.succeeded(job.id)
    (step,) = await client.steps(job.id)
    assert step.metrics["trajectories_failed"] == 4


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


async def test_a_job_without_a_client_takes_no_batches(client: Client) -> None:
    job = await client.create(small_job(1))
    with pytest.raises(FailedPreconditionError) as refused:
        await submit(client, job.id, batch(job.id, 0))
    assert refused.value.reason == "NOT_CLIENT_DRIVEN"
    with pytest.raises(FailedPreconditionError):
        await finish(client, job.id)
    await client.succeeded(job.id)


async def test_a_job_needs_an_environment_or_a_client(client: Client) -> None:
    spec = small_job(1)
    spec.ClearField("environment")
    with pytest.raises(InvalidArgumentError, match="environment"):
        await client.create(spec)
    spec.client.SetInParent()
    spec.evaluation.SetInParent()
    with pytest.raises(InvalidArgumentError, match="evaluation"):
        await client.create(spec)


async def test_the_best_version_that_the_client_logged_stays(fleet: Fleet, client: Client) -> None:
    job = await client.create(
        client_job(4, retention=spec_pb2.RetentionSpec(keep_last=1, keep_best=1))
    )
    await waits(client, job.id)
    channel = connect(fleet.registry.address)
    registry: registry_grpc.RegistryServiceAsyncStub = registry_grpc.RegistryServiceStub(channel)
    for version, reward in ((0, 1.0), (1, 3.0), (2, 2.0), (3, 0.5)):
        await client.until(job.id, lambda job, v=version: job.completed_steps >= v)
        await registry.RecordEvaluation(
            registry_pb.RecordEvaluationRequest(
                model=job.id, version=version, metrics={"val/reward": reward}
            )
        )
        await submit(client, job.id, batch(job.id, version))
    await client.succeeded(job.id)
    await channel.close()
    kept = [v.manifest.version for v in await fleet.client.list_versions(job.id)]
    assert sorted(kept) == [1, 4]


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
