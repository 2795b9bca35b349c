"""Jobs whose groups come from their client, and clients that fall silent; on fakes of all ports."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from podium.core.errors import AlreadyExistsError, FailedPreconditionError, InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.ports import Submission
from support.controlled import small_job
from support.fakes import ledger as fake_ledger
from support.memory_fixtures import client, fleet
from support.memory_fleet import MemoryClient, MemoryFleet
from support.sessions import batch, beat, client_job, finish, submit
from support.waiting import eventually

__all__ = ["client", "fleet"]


@pytest.fixture(autouse=True)
def later(fleet: MemoryFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks, by which clients are silent, go as `fleet.seconds` says, and are looked at soon."""
    fleet.database.clock = lambda: time.time() + fleet.seconds
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + fleet.seconds)
    monkeypatch.setattr(fake_ledger, "time", clock)
    monkeypatch.setattr(fake_ledger, "_POLL_SECONDS", 0.005)


async def steps_done(client: MemoryClient, job_id: str, steps: int) -> pb.Job:
    return await client.until(job_id, lambda job: job.completed_steps >= steps)


async def waits(client: MemoryClient, job_id: str) -> pb.Job:
    """The job once its first version is served and it waits for a batch."""
    return await client.until(
        job_id, lambda job: job.state == pb.JOB_STATE_RUNNING and job.phase == "collect"
    )


async def looked(fleet: MemoryFleet) -> None:
    """Returns when scheduler and run have looked at what is stored, some times each."""
    enough = fleet.transactions + 100
    await eventually(lambda: fleet.transactions > enough)


async def test_t21_a_batch_sent_twice_is_one_step(fleet: MemoryFleet, client: MemoryClient) -> None:
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


async def test_a_silent_client_costs_no_trainer_and_is_heard_again(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    spec = client_job(2)
    spec.client.idle_seconds = 0.05
    job = await client.create(spec)
    idle = await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert idle.phase == "idle"
    assert fleet.trainer.job == ""
    # It can still be sampled from.
    assert (fleet.inference.job, fleet.inference.version) == (job.id, 0)
    await submit(client, job.id, batch(job.id, 0))
    await steps_done(client, job.id, 1)
    await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert (await client.resume(job.id)).state == pb.JOB_STATE_QUEUED
    await client.state(job.id, pb.JOB_STATE_PAUSED)
    await finish(client, job.id)
    assert (await client.succeeded(job.id)).completed_steps == 1


async def test_what_people_paused_stays_paused(fleet: MemoryFleet, client: MemoryClient) -> None:
    job = await client.create(client_job(1))
    await waits(client, job.id)
    await client.pause(job.id)
    assert (await client.state(job.id, pb.JOB_STATE_PAUSED)).phase == "wait"
    await submit(client, job.id, batch(job.id, 0))
    # Another one runs to its end meanwhile.
    await client.succeeded((await client.create(small_job(1))).id)
    assert (await client.get(job.id)).state == pb.JOB_STATE_PAUSED
    await client.resume(job.id)
    await client.succeeded(job.id)


async def test_cancelling_ends_the_wait(client: MemoryClient) -> None:
    job = await client.create(client_job(1))
    await waits(client, job.id)
    await client.cancel(job.id)
    await client.state(job.id, pb.JOB_STATE_CANCELLED)
    with pytest.raises(FailedPreconditionError) as ended:
        await finish(client, job.id)
    assert ended.value.reason == "JOB_ENDED"


@pytest.mark.parametrize("ahead", [0, 1])
async def test_how_far_a_client_may_run_ahead(
    fleet: MemoryFleet, client: MemoryClient, ahead: int
) -> None:
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
    for version, policy in ((0, job.id), (1 + ahead, "another")):
        with pytest.raises(FailedPreconditionError) as stale:
            await submit(client, job.id, batch(policy, version))
        assert stale.value.reason == "STALE_BATCH"


async def test_a_group_in_which_all_failed_is_a_step_that_learns_nothing(
    client: MemoryClient,
) -> None:
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


async def test_a_job_without_a_client_takes_no_batches(client: MemoryClient) -> None:
    job = await client.create(small_job(1))
    with pytest.raises(FailedPreconditionError) as refused:
        await submit(client, job.id, batch(job.id, 0))
    assert refused.value.reason == "NOT_CLIENT_DRIVEN"
    with pytest.raises(FailedPreconditionError):
        await finish(client, job.id)
    await client.succeeded(job.id)


async def test_a_job_needs_an_environment_or_a_client(client: MemoryClient) -> None:
    spec = small_job(1)
    spec.ClearField("environment")
    with pytest.raises(InvalidArgumentError) as refused:
        await client.create(spec)
    assert "job.spec.environment" in {each.field for each in refused.value.violations}
    spec.client.SetInParent()
    spec.evaluation.SetInParent()
    with pytest.raises(InvalidArgumentError) as refused:
        await client.create(spec)
    assert "job.spec.evaluation" in {each.field for each in refused.value.violations}


async def test_the_best_version_that_the_client_logged_stays(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    job = await client.create(
        client_job(4, retention=spec_pb2.RetentionSpec(keep_last=1, keep_best=1))
    )
    await waits(client, job.id)
    for version, reward in ((0, 1.0), (1, 3.0), (2, 2.0), (3, 0.5)):
        await steps_done(client, job.id, version)
        await fleet.registry.record_evaluation(job.id, version, {"val/reward": reward})
        await submit(client, job.id, batch(job.id, version))
    await client.succeeded(job.id)
    assert fleet.versions(job.id) == [1, 4]


async def test_a_silent_client_s_place_is_kept_until_somebody_wants_it(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    job = await client.create(client_job(2), "silent")
    await waits(client, job.id)
    await beat(client, job.id, 0.2)
    fleet.seconds = 1.0
    await looked(fleet)
    assert (await client.get(job.id)).state == pb.JOB_STATE_RUNNING

    other = await client.create(client_job(1), "other-1")
    await waits(client, other.id)
    idle = await client.get(job.id)
    assert (idle.state, idle.phase) == (pb.JOB_STATE_PAUSED, "idle")
    assert any("client is gone" in event.message for event in await client.events(job.id))
    # Back: it waits its turn, and trains when that comes.
    assert (await beat(client, job.id, 600)).state == pb.JOB_STATE_QUEUED
    await submit(client, job.id, batch(job.id, 0))
    waiting = await client.until(job.id, lambda job: job.wait_reason != "")
    assert "other" in waiting.wait_message
    await submit(client, other.id, batch(other.id, 0))
    await client.succeeded(other.id)
    await steps_done(client, job.id, 1)
    await finish(client, job.id)
    await client.succeeded(job.id)


async def test_one_that_takes_its_leave_is_gone_at_once(client: MemoryClient) -> None:
    job = await client.create(client_job(2), "leaves")
    await waits(client, job.id)
    await beat(client, job.id, 3600)
    await beat(client, job.id, 0)
    other = await client.create(client_job(1), "other-2")
    await waits(client, other.id)
    assert (await client.get(job.id)).phase == "idle"


async def test_one_that_lives_and_thinks_has_its_idle_time_and_no_more(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    spec = client_job(2)
    spec.client.idle_seconds = 1000
    job = await client.create(spec, "thinks")
    await beat(client, job.id, 3600)
    await waits(client, job.id)
    other = await client.create(client_job(1), "other-3")
    await client.until(other.id, lambda job: job.wait_reason != "")
    fleet.seconds = 900.0
    await looked(fleet)
    assert (await client.get(job.id)).state == pb.JOB_STATE_RUNNING
    fleet.seconds = 1001.0
    await waits(client, other.id)
    assert (await beat(client, job.id, 3600)).state == pb.JOB_STATE_PAUSED
    assert (await client.get(job.id)).phase == "idle"


async def test_one_that_never_said_that_it_lives_is_waited_for(
    fleet: MemoryFleet, client: MemoryClient
) -> None:
    spec = client_job(2)
    spec.client.idle_seconds = 10_000
    job = await client.create(spec, "old")
    await waits(client, job.id)
    other = await client.create(client_job(1), "other-4")
    await client.until(other.id, lambda job: job.wait_reason != "")
    fleet.seconds = 9000.0
    await looked(fleet)
    assert (await client.get(job.id)).state == pb.JOB_STATE_RUNNING


async def test_what_comes_after_a_finished_jobs_last_step_is_not_asked_for_without_a_pause(
    fleet: MemoryFleet, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = fake_ledger.MemoryLedger.await_submission

    async def counted(self: object, job_id: str, step: int, seconds: float) -> Submission:
        asked.append(step)
        return await ask(self, job_id, step, seconds)  # type: ignore[arg-type]

    monkeypatch.setattr(fake_ledger.MemoryLedger, "await_submission", counted)
    job = await client.create(client_job(4, max_staleness=1))
    hold = fleet.hold("step:begin", "1")
    await submit(client, job.id, batch(job.id, 0))
    await hold.reached()
    await finish(client, job.id)
    asked.clear()
    await looked(fleet)
    # The step after it is collected beside it, and will have nothing.
    assert len(asked) < 20
    hold.release()
    assert (await client.succeeded(job.id)).completed_steps == 1
