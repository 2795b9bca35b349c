"""What every store of the controller holds: the SQL one, and the one in memory that tests use.

A module that imports these tests has a fixture `stores`: a replica with a store of its own.
"""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    NotFoundError,
    OutOfRangeError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1.judge_service_pb2 import JudgeUsage
from podium_controller.domain import job_states
from podium_controller.domain.coach import CoachEvent
from podium_controller.domain.errors import LeaseLostError
from podium_controller.domain.ports import COLLECTED, CONSUMED, JUDGED, GroupKey
from podium_controller.domain.waits import Wait
from support.stores import Stores, group, lead, new, step


async def sequences(stores: Stores, job_id: str = "job") -> list[int]:
    events, more = await stores.jobs.events(job_id, 0, 1000)
    assert not more
    return [event.sequence for event in events]


async def test_fifty_equal_requests_at_once_make_one_job(stores: Stores) -> None:
    replicas = [stores, stores.another()]
    made = await asyncio.gather(
        *(replicas[i % 2].jobs.create(new(f"job-{i}", request_id="r")) for i in range(50))
    )
    assert len({job.id for job in made}) == 1
    page, after = await replicas[0].jobs.page([], None, 100)
    assert [job.id for job in page] == [made[0].id]
    assert after is None
    with pytest.raises(AlreadyExistsError) as raised:
        await replicas[1].jobs.create(new("other", request_id="r", digest="another body"))
    assert raised.value.reason == "REQUEST_ID_REUSED"
    # After a restart too.
    again = stores.another()
    found = await again.jobs.find_request("r", "d")
    assert found is not None
    assert found.id == made[0].id


async def test_an_id_is_given_once_even_after_its_job_was_deleted(stores: Stores) -> None:
    await stores.jobs.create(new(request_id="r"))
    with pytest.raises(AlreadyExistsError) as raised:
        await stores.jobs.create(new())
    assert raised.value.reason == "JOB_EXISTS"
    with pytest.raises(FailedPreconditionError):
        await stores.jobs.delete("job")
    await stores.jobs.request("job", job_states.after_cancel)
    await stores.jobs.delete("job")
    await stores.jobs.delete("job")
    with pytest.raises(NotFoundError):
        await stores.jobs.delete("never-was")
    with pytest.raises(NotFoundError):
        await stores.jobs.get("job")
    for request_id in ("", "r"):
        with pytest.raises(AlreadyExistsError):
            await stores.jobs.create(new(request_id=request_id))
    assert await stores.jobs.page([], None, 10) == ([], None)
    assert await stores.jobs.is_taken("job")


async def test_events_have_no_gaps_however_many_write(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await asyncio.gather(
        *(ledger.add_event("job", pb.EVENT_TYPE_WARNING, f"event {i}") for i in range(30))
    )
    assert await sequences(stores) == list(range(1, 32))
    page, more = await stores.jobs.events("job", 5, 10)
    assert [event.sequence for event in page] == list(range(6, 16))
    assert more


async def test_a_step_commits_once_and_whole(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    assert await ledger.start("job", "pool")
    assert not await ledger.start("job", "pool")
    for index in range(2):
        await ledger.save_group(GroupKey("job", 1, index), COLLECTED, group(1, index))
    await ledger.save_group(GroupKey("job", 1, 0), JUDGED, group(1, 0, attempts=2))
    stored = await ledger.stored_groups("job", 1)
    assert [(s.status, len(s.group.trajectories)) for s in stored.values()] == [
        (JUDGED, 2),
        (COLLECTED, 3),
    ]

    first = step(1, "job/s1/g0", "job/s1/g1")
    done = await asyncio.gather(*(ledger.commit_step("job", first) for _ in range(5)))
    assert sorted(done) == [False] * 4 + [True]
    job = await stores.jobs.get("job")
    assert job.completed_steps == 1
    assert job.latest_metrics == {"reward_mean": 0.5}
    assert job.HasField("remaining_seconds")
    assert {s.status for s in (await ledger.stored_groups("job", 1)).values()} == {CONSUMED}
    events, _ = await stores.jobs.events("job", 0, 100)
    assert [event.type for event in events].count(pb.EVENT_TYPE_STEP) == 1
    # What has trained is never stored, dropped or skipped over.
    with pytest.raises(InternalError):
        await ledger.save_group(GroupKey("job", 1, 0), COLLECTED, group(1, 0))
    await ledger.drop_group(GroupKey("job", 1, 0))
    assert len(await ledger.stored_groups("job", 1)) == 2
    with pytest.raises(InternalError):
        await ledger.commit_step("job", step(3))
    assert [s.number for s in (await stores.jobs.steps("job", 0, 10))[0]] == [1]


async def test_what_is_said_of_a_step_is_there_with_it_and_once(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    assert (await ledger.past("job", 2)).steps == []
    said = [CoachEvent(pb.EVENT_TYPE_WARNING, "one"), CoachEvent(pb.EVENT_TYPE_RECOVERY, "two")]
    first = step(1)
    done = await asyncio.gather(*(ledger.commit_step("job", first, said) for _ in range(3)))
    assert sorted(done) == [False, False, True]
    for number in (2, 3):
        assert await ledger.commit_step("job", step(number))
    events, _ = await stores.jobs.events("job", 0, 100)
    told = [(each.type, each.message, each.step) for each in events if each.step]
    assert told[:4] == [
        (pb.EVENT_TYPE_STEP, "step 1 is committed", 1),
        (pb.EVENT_TYPE_WARNING, "one", 1),
        (pb.EVENT_TYPE_RECOVERY, "two", 1),
        (pb.EVENT_TYPE_STEP, "step 2 is committed", 2),
    ]
    past = await ledger.past("job", 2)
    assert [each.number for each in past.steps] == [2, 3]
    assert list(past.events) == [(each.kind, each.message) for each in said]


async def test_a_dropped_group_may_be_collected_again(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    key = GroupKey("job", 1, 0)
    await ledger.save_group(key, JUDGED, group(1, 0))
    await ledger.drop_group(key)
    assert await ledger.stored_groups("job", 1) == {}
    await ledger.save_group(key, COLLECTED, group(1, 0))
    assert (await ledger.stored_groups("job", 1))[0].status == COLLECTED


async def test_what_judges_use_is_counted_by_job_and_by_project_and_month(
    stores: Stores,
) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    assert await ledger.judge_usage("job") == JudgeUsage()
    used = JudgeUsage(calls=2, prompt_tokens=100, completion_tokens=10, cost=0.5, cached=1)
    # At once, as groups come: none of them may be lost.
    await asyncio.gather(
        *(
            ledger.save_judged(GroupKey("job", 1, index), group(1, index), used, "2026-11")
            for index in range(5)
        )
    )
    assert (await ledger.stored_groups("job", 1))[4].status == JUDGED
    await ledger.save_judged(GroupKey("job", 2, 0), group(2, 0), used, "2026-12")
    await ledger.save_judged(GroupKey("job", 2, 1), group(2, 1), JudgeUsage(), "2027-01")
    assert await ledger.judge_usage("job") == JudgeUsage(
        calls=12, prompt_tokens=600, completion_tokens=60, cost=3.0, cached=6
    )
    await stores.jobs.request("job", lambda _: pb.JOB_STATE_CANCELLED)
    await stores.jobs.delete("job")
    assert await ledger.project_judge_tokens("default", "2026-11") == 550
    assert await ledger.project_judge_tokens("default", "2026-12") == 110
    assert await ledger.project_judge_tokens("other", "2026-11") == 0
    assert await ledger.judge_tokens("2026-11") == {"default": 550}
    assert await ledger.judge_tokens("2027-01") == {}


async def test_evaluations_commit_once_by_version_and_mode(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.save_group(
        GroupKey("job", 0, 0, "sampled"), COLLECTED, group(0, 0, mode="sampled")
    )
    assert await ledger.stored_groups("job", 0) == {}
    for _ in range(2):
        for version, mode in ((0, "sampled"), (0, "greedy"), (2, "sampled")):
            await ledger.commit_evaluation("job", pb.Evaluation(version=version, mode=mode))
    assert await ledger.evaluated_modes("job", 0) == {"sampled", "greedy"}
    found, more = await stores.jobs.evaluations("job", None, 2)
    assert [(e.version, e.mode) for e in found] == [(0, "greedy"), (0, "sampled")]
    assert more
    rest, more = await stores.jobs.evaluations("job", (0, "sampled"), 2)
    assert [(e.version, e.mode) for e in rest] == [(2, "sampled")]
    assert not more
    updates, _ = await stores.jobs.updates("job", 0, 100)
    told = [u.evaluation.mode for u in updates if u.HasField("evaluation")]
    assert told == ["sampled", "greedy", "sampled"]


async def test_trajectories_page_by_step_group_and_attempt(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    # Ten groups, so that g10 must not come before g2.
    for number in (2, 1):
        for index in reversed(range(11)):
            await ledger.save_group(GroupKey("job", number, index), JUDGED, group(number, index))
    await ledger.save_group(GroupKey("job", 1, 0, "greedy"), COLLECTED, group(1, 0, mode="greedy"))
    expected = [f"job/s{s}/g{g}/t{t}" for s in (1, 2) for g in range(11) for t in range(3)]

    async def all_pages(limit: int, max_bytes: int = 10**9, **only: object) -> list[str]:
        options: dict[str, object] = {"evaluation": False, "step": None, **only}
        ids: list[str] = []
        after = None
        while True:
            page, after = await stores.jobs.trajectories(
                "job", after=after, limit=limit, max_bytes=max_bytes, **options
            )
            assert len(page) <= limit
            ids += [trajectory.id for trajectory in page]
            if after is None:
                return ids

    assert await all_pages(1000) == expected
    assert await all_pages(4) == expected
    # Every page holds one, however large it is.
    assert await all_pages(50, max_bytes=1) == expected
    assert await all_pages(7, step=2) == expected[33:]
    assert await all_pages(7, evaluation=True) == [f"job/v1-greedy/g0/t{t}" for t in range(3)]
    greedy, _ = await stores.jobs.trajectories(
        "job", evaluation=True, step=None, after=None, limit=9, max_bytes=10**9
    )
    assert [(each.evaluation_mode, each.step) for each in greedy] == [("greedy", 1)] * 3
    assert {each.job_id for each in greedy} == {"job"}


async def test_jobs_page_newest_first(stores: Stores) -> None:
    for index in range(5):
        await stores.jobs.create(new(f"job-{index}"))
    await stores.jobs.request("job-3", job_states.after_cancel)
    first, after = await stores.jobs.page([], None, 2)
    assert [job.id for job in first] == ["job-4", "job-3"]
    rest, end = await stores.jobs.page([], after, 10)
    assert [job.id for job in rest] == ["job-2", "job-1", "job-0"]
    assert end is None
    cancelled, _ = await stores.jobs.page([pb.JOB_STATE_CANCELLED], None, 10)
    assert [job.id for job in cancelled] == ["job-3"]


async def test_watch_pages_end_with_the_job(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    updates, over = await stores.jobs.updates("job", 0, 10)
    assert [u.event.sequence for u in updates] == [1, 2]
    assert not over
    assert await ledger.settle("job", pb.JOB_STATE_FAILED, reason="WHY", message="because")
    updates, over = await stores.jobs.updates("job", 0, 2)
    assert not over
    updates, over = await stores.jobs.updates("job", 2, 10)
    assert over
    assert updates[0].job.failure_reason == "WHY"
    assert "because" in updates[0].event.message
    assert (await stores.jobs.updates("job", 3, 10)) == ([], True)
    with pytest.raises(OutOfRangeError):
        await stores.jobs.updates("job", 4, 10)
    with pytest.raises(NotFoundError):
        await stores.jobs.updates("nobody", 0, 10)


async def test_a_lease_has_one_holder_and_passes_on(stores: Stores) -> None:
    replicas = [stores, *(stores.another() for _ in range(4))]
    taken = await asyncio.gather(
        *(replica.leases.acquire(f"r{i}", 60) for i, replica in enumerate(replicas))
    )
    assert sorted(epoch or 0 for epoch in taken) == [0, 0, 0, 0, 1]
    leader = taken.index(1)
    leases = replicas[leader].leases
    assert await leases.renew(f"r{leader}", 1, 60)
    assert not await leases.renew("somebody-else", 1, 60)
    await leases.release(f"r{leader}", 1)
    other = replicas[leader - 1].leases
    assert await other.acquire("next", 0.2) == 2
    assert not await leases.renew(f"r{leader}", 1, 60)
    # It is not renewed, so it ends by the database's own clock.
    async with asyncio.timeout(120):
        while (epoch := await leases.acquire("last", 60)) is None:
            await asyncio.sleep(0.05)
    assert epoch == 3


async def test_who_lost_the_lease_writes_nothing(stores: Stores) -> None:
    stale = await lead(stores, "old", ttl=0.01)
    await stores.jobs.create(new())
    await stale.start("job", "pool")
    async with asyncio.timeout(120):
        while (epoch := await stores.leases.acquire("new", 60)) is None:
            await asyncio.sleep(0.01)
    before = await sequences(stores)
    writes = [
        stale.set_phase("job", "train"),
        stale.add_event("job", pb.EVENT_TYPE_WARNING, "late"),
        stale.save_group(GroupKey("job", 1, 0), COLLECTED, group(1, 0)),
        stale.save_judged(GroupKey("job", 1, 0), group(1, 0), JudgeUsage(calls=1), "2026-11"),
        stale.drop_group(GroupKey("job", 1, 0)),
        stale.commit_step("job", step(1)),
        stale.commit_evaluation("job", pb.Evaluation(version=0, mode="sampled")),
        stale.settle("job", pb.JOB_STATE_SUCCEEDED),
        stale.start("job", "pool"),
        stale.rest("job"),
        stale.set_wait("job", "WHY", "because"),
        stale.keep_waiting({"job": Wait("WHY", "because")}),
    ]
    for write in writes:
        with pytest.raises(LeaseLostError):
            await write
    assert await sequences(stores) == before
    fresh = stores.ledger(epoch)
    assert await fresh.commit_step("job", step(1))


async def test_queue_order_is_that_of_queueing(stores: Stores) -> None:
    ledger = await lead(stores)
    for index in range(3):
        await stores.jobs.create(new(f"job-{index}"))
    await stores.jobs.request("job-0", job_states.after_pause)
    await stores.jobs.request("job-0", job_states.after_resume)
    queued = await ledger.in_states([pb.JOB_STATE_QUEUED])
    assert [job.id for job in queued] == ["job-1", "job-2", "job-0"]
    assert await ledger.counts() == {("default", pb.JOB_STATE_QUEUED): 3}
    assert await ledger.state_of("job-1") == pb.JOB_STATE_QUEUED
    assert await ledger.state_of("nobody") is None


async def test_waiters_wake_at_once(stores: Stores) -> None:
    await stores.jobs.create(new())
    ticket = stores.notifications.ticket("job")
    waiting = asyncio.create_task(stores.notifications.wait(ticket, 60))
    await stores.jobs.request("job", job_states.after_cancel)
    await asyncio.wait_for(waiting, 60)
    assert ticket.is_set()


async def test_a_run_ends_as_people_asked_meanwhile(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    with pytest.raises(FailedPreconditionError):
        await ledger.settle("job", pb.JOB_STATE_SUCCEEDED)
    await ledger.start("job", "pool")
    await ledger.set_phase("job", "train")
    await ledger.set_wait("job", "TRAINER_LOST", "away")
    assert (await stores.jobs.get("job")).wait_reason == "TRAINER_LOST"
    await stores.jobs.request("job", job_states.after_pause)
    await stores.jobs.request("job", job_states.after_resume)
    assert await ledger.settle("job", pb.JOB_STATE_PAUSED) == pb.JOB_STATE_QUEUED
    job = await stores.jobs.get("job")
    assert (job.phase, job.wait_reason) == ("wait", "")
    await ledger.start("job", "pool")
    await stores.jobs.request("job", job_states.after_cancel)
    failed = await ledger.settle("job", pb.JOB_STATE_FAILED, reason="WHY", message="because")
    assert failed == pb.JOB_STATE_CANCELLED
    assert (await stores.jobs.get("job")).failure_reason == ""
