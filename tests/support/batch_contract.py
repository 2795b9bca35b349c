"""What every store of the controller holds of jobs whose clients bring their groups.

See `support.store_contract`.
"""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.ports import COLLECTED, Submission
from podium_controller.domain.waits import Wait
from podium_controller.store import (
    NewBatch,
)
from podium_controller.store.jobs import NewJob
from support.stores import Stores, group, lead, new, step


def driven(job_id: str = "job", *, staleness: int = 0, steps: int = 5) -> NewJob:
    """A job whose client brings its groups."""
    spec = spec_pb2.JobSpec(base_model="m", training=spec_pb2.TrainingSpec(steps=steps))
    spec.client.SetInParent()
    spec.rollout.max_staleness = staleness
    return NewJob(job_id, spec, "", "d", "")


def batch(request_id: str, *, digest: str = "d", step: int = 0) -> NewBatch:
    """Of that job."""
    return NewBatch("job", request_id, digest, step)


def two_groups(spec: spec_pb2.JobSpec, number: int) -> list[trajectory_pb2.Group]:
    """What every batch is made of."""
    return [group(number, index) for index in range(2)]


async def refused(stores: Stores, new: NewBatch) -> str:
    """Why a batch is."""
    with pytest.raises((FailedPreconditionError, AlreadyExistsError)) as raised:
        await stores.batches.submit(new, two_groups)
    return raised.value.reason


async def test_a_batch_is_stored_whole_and_once(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven(staleness=1))
    assert await stores.batches.submit(batch("a"), two_groups) == 1
    assert await stores.batches.submit(batch("a"), two_groups) == 1
    assert await refused(stores, batch("a", digest="other")) == "REQUEST_ID_REUSED"
    assert await refused(stores, batch("b", step=1)) == "WRONG_STEP"
    assert await stores.batches.submit(batch("b", step=2), two_groups) == 2
    assert await refused(stores, batch("c")) == "BATCH_PENDING"
    stored = await ledger.stored_groups("job", 1)
    assert [(s.status, s.group.id) for s in stored.values()] == [
        (COLLECTED, "job/s1/g0"),
        (COLLECTED, "job/s1/g1"),
    ]

    def too_old(spec: spec_pb2.JobSpec, number: int) -> list[trajectory_pb2.Group]:
        raise FailedPreconditionError("sample it again", reason="STALE_BATCH")

    await ledger.commit_step("job", step(1, "job/s1/g0", "job/s1/g1"))
    with pytest.raises(FailedPreconditionError):
        await stores.batches.submit(batch("c"), too_old)
    assert await ledger.stored_groups("job", 3) == {}
    assert await stores.batches.submit(batch("c"), two_groups) == 3


async def test_no_batch_follows_the_last_or_the_end(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven(steps=1))
    await stores.jobs.create(new("other"))
    assert await stores.batches.submit(batch("a"), two_groups) == 1
    assert await refused(stores, batch("b")) == "NO_STEP_LEFT"
    await stores.batches.finish("job")
    assert await refused(stores, batch("b")) == "JOB_FINISHING"
    await ledger.start("job", "pool")
    await ledger.settle("job", pb.JOB_STATE_SUCCEEDED)
    assert (await stores.batches.finish("job")).state == pb.JOB_STATE_SUCCEEDED
    assert await refused(stores, batch("b")) == "JOB_ENDED"
    with pytest.raises(FailedPreconditionError) as raised:
        await stores.batches.finish("other")
    assert raised.value.reason == "NOT_CLIENT_DRIVEN"


async def test_a_silent_client_s_job_rests_until_there_is_news(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven())
    await ledger.start("job", "pool")
    assert await ledger.await_submission("job", 1, 0.01) == Submission(0, False)
    assert await ledger.rest("job") == pb.JOB_STATE_PAUSED
    assert (await stores.jobs.get("job")).phase == "idle"
    await stores.batches.submit(batch("a"), two_groups)
    assert await ledger.state_of("job") == pb.JOB_STATE_QUEUED
    await ledger.start("job", "pool")
    # It came between the last look and the rest.
    assert await ledger.rest("job") == pb.JOB_STATE_QUEUED
    assert await ledger.await_submission("job", 1, 60) == Submission(2, False)
    await stores.batches.finish("job")
    assert await ledger.await_submission("job", 2, 60) == Submission(0, True)


async def test_what_people_paused_stays_paused_whatever_its_client_says(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven())
    await ledger.start("job", "pool")
    await stores.jobs.request("job", job_states.after_pause)
    await ledger.settle("job", pb.JOB_STATE_PAUSED)
    await stores.batches.submit(batch("a"), two_groups)
    await stores.clients.beat("job", "me", 0)
    await stores.clients.beat("job", "me", 60)
    assert await ledger.state_of("job") == pb.JOB_STATE_PAUSED


async def test_what_was_cancelled_is_not_finished(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven())
    await ledger.start("job", "pool")
    await stores.jobs.request("job", job_states.after_cancel)
    await ledger.settle("job", pb.JOB_STATE_CANCELLED)
    with pytest.raises(FailedPreconditionError) as raised:
        await stores.batches.finish("job")
    assert raised.value.reason == "JOB_ENDED"


async def test_a_waiting_loop_wakes_at_its_batch(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven())
    waiting = asyncio.create_task(ledger.await_submission("job", 1, 600))
    await stores.batches.submit(batch("a"), two_groups)
    assert await asyncio.wait_for(waiting, 120) == Submission(2, False)


async def test_a_dead_client_holds_no_place_that_another_wants(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(driven())
    await stores.jobs.create(new("other"))
    await ledger.start("job", "pool")
    await stores.clients.beat("job", "me", 60)
    await ledger.keep_waiting({"other": Wait("MAX_ACTIVE_JOBS", "full"), "job": Wait("X", "")})
    assert not (await ledger.await_submission("job", 1, 0.01)).gone
    await stores.clients.beat("job", "me", 0)
    assert (await ledger.await_submission("job", 1, 60)).gone
    waits = [job.wait for job in await ledger.in_states([pb.JOB_STATE_QUEUED])]
    assert waits == [Wait("MAX_ACTIVE_JOBS", "full")]
    assert await ledger.rest("job") == pb.JOB_STATE_PAUSED
    back = await stores.clients.beat("job", "me", 60)
    assert back.state == pb.JOB_STATE_QUEUED
    with pytest.raises(FailedPreconditionError):
        await stores.clients.beat("other", "me", 60)
