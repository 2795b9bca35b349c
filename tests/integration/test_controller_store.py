"""The controller's database, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    NotFoundError,
    OutOfRangeError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1.judge_service_pb2 import JudgeUsage
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.errors import DatabaseUnavailableError, LeaseLostError
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import COLLECTED, CONSUMED, JUDGED, GroupKey
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.store import Database, JobStore, LeaseStore, SqlLedger
from podium_controller.store.jobs import NewJob
from podium_controller.store.leases import check_fence
from podium_controller.store.tables import metadata, steps
from support.postgres import Postgres, postgres

__all__ = ["postgres"]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/new/controller.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.create_database()


class Stores:
    """One replica."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.hub = Notifications()
        self.jobs = JobStore(self.database, self.hub)
        self.leases = LeaseStore(self.database)

    async def lead(self, holder: str = "test", ttl: float = 60) -> SqlLedger:
        epoch = await self.leases.acquire(holder, ttl)
        assert epoch is not None
        return SqlLedger(self.database, self.hub, epoch)


@pytest.fixture
async def stores(url: str) -> AsyncIterator[Stores]:
    replica = Stores(url)
    await replica.database.migrate()
    yield replica
    await replica.database.close()


def new(job_id: str = "job", *, request_id: str = "", digest: str = "d", steps: int = 5) -> NewJob:
    spec = spec_pb2.JobSpec(base_model="m", training=spec_pb2.TrainingSpec(steps=steps))
    return NewJob(job_id, spec, request_id, digest, "")


def group(step: int, index: int, *, mode: str = "", attempts: int = 3) -> trajectory_pb2.Group:
    id_ = f"job/v{step}-{mode}/g{index}" if mode else f"job/s{step}/g{index}"
    result = trajectory_pb2.Group(id=id_, job_id="job", step=step)
    for attempt in range(attempts):
        result.trajectories.add(id=f"{id_}/t{attempt}", attempt=attempt)
    return result


def step(number: int, *group_ids: str) -> pb.Step:
    return pb.Step(
        number=number,
        version=number,
        group_ids=group_ids,
        metrics={"reward_mean": 0.5 * number},
        start_time=timestamp(now_ns()),
        commit_time=timestamp(now_ns()),
    )


async def sequences(stores: Stores, job_id: str = "job") -> list[int]:
    events, more = await stores.jobs.events(job_id, 0, 1000)
    assert not more
    return [event.sequence for event in events]


async def test_migrations_make_the_tables_that_the_code_expects(stores: Stores) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def differences(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    async with stores.database.read() as connection:
        assert await connection.run_sync(differences) == []


_MIGRATE = """
import asyncio, sys
from podium_controller.store import Database

async def main():
    database = Database(sys.argv[1])
    await database.migrate()
    await database.close()

asyncio.run(main())
"""


async def test_replicas_that_start_together_migrate_once(url: str) -> None:
    replicas = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", _MIGRATE, url) for _ in range(4)
    ]
    assert [await replica.wait() for replica in replicas] == [0] * 4
    stores = Stores(url)
    await stores.jobs.create(new())
    assert (await stores.jobs.get("job")).id == "job"
    await stores.database.close()


async def test_a_database_that_is_away_is_unavailable() -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(DatabaseUnavailableError):
        await away.migrate()
    await away.close()


async def test_fifty_equal_requests_at_once_make_one_job(url: str) -> None:
    replicas = [Stores(url) for _ in range(2)]
    await replicas[0].database.migrate()
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
    for replica in replicas:
        await replica.database.close()
    # After a restart too.
    again = Stores(url)
    found = await again.jobs.find_request("r", "d")
    assert found is not None
    assert found.id == made[0].id
    await again.database.close()


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
    ledger = await stores.lead()
    await stores.jobs.create(new())
    await asyncio.gather(
        *(ledger.add_event("job", pb.EVENT_TYPE_WARNING, f"event {i}") for i in range(30))
    )
    assert await sequences(stores) == list(range(1, 32))
    page, more = await stores.jobs.events("job", 5, 10)
    assert [event.sequence for event in page] == list(range(6, 16))
    assert more


async def test_a_step_commits_once_and_whole(stores: Stores) -> None:
    ledger = await stores.lead()
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


async def test_a_step_that_breaks_off_leaves_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last write of the commit fails: none of the earlier ones stays."""
    ledger = await stores.lead()
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    await ledger.save_group(GroupKey("job", 1, 0), JUDGED, group(1, 0))
    before = await sequences(stores)

    async def broken(*_: object, **__: object) -> int:
        raise ConnectionError("the plug was pulled")

    monkeypatch.setattr("podium_controller.store.ledger.add_event", broken)
    with pytest.raises(ConnectionError):
        await ledger.commit_step("job", step(1, "job/s1/g0"))
    assert (await stores.jobs.get("job")).completed_steps == 0
    assert await sequences(stores) == before
    assert (await ledger.stored_groups("job", 1))[0].status == JUDGED
    async with stores.database.read() as connection:
        assert (await connection.execute(sa.select(steps))).all() == []


async def test_a_dropped_group_may_be_collected_again(stores: Stores) -> None:
    ledger = await stores.lead()
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
    ledger = await stores.lead()
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
    ledger = await stores.lead()
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
    ledger = await stores.lead()
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
    ledger = await stores.lead()
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


async def test_a_lease_has_one_holder_and_passes_on(url: str) -> None:
    replicas = [Stores(url) for _ in range(5)]
    await replicas[0].database.migrate()
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
    async with asyncio.timeout(30):
        while (epoch := await leases.acquire("last", 60)) is None:
            await asyncio.sleep(0.05)
    assert epoch == 3
    for replica in replicas:
        await replica.database.close()


async def test_who_lost_the_lease_writes_nothing(stores: Stores) -> None:
    stale = await stores.lead("old", ttl=0.01)
    await stores.jobs.create(new())
    await stale.start("job", "pool")
    async with asyncio.timeout(30):
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
    ]
    for write in writes:
        with pytest.raises(LeaseLostError):
            await write
    assert await sequences(stores) == before
    fresh = SqlLedger(stores.database, stores.hub, epoch)
    assert await fresh.commit_step("job", step(1))


async def test_a_renewal_goes_before_the_writers_that_wait(stores: Stores) -> None:
    """More of them than there are connections, and each under the lease's fence."""
    epoch = await stores.leases.acquire("busy", 60)
    assert epoch is not None
    order: list[str] = []
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        async with stores.database.write() as connection:
            await check_fence(connection, epoch)
            inside.set()
            await go_on.wait()
        order.append("write")

    async def renew() -> None:
        assert await stores.leases.renew("busy", epoch, 60)
        order.append("renewal")

    async with asyncio.timeout(60):
        writes = [asyncio.create_task(write()) for _ in range(40)]
        await inside.wait()
        renewal = asyncio.create_task(renew())
        # SQLite has one writer: the renewal follows it, and at most one more.
        await asyncio.wait({renewal}, timeout=1)
        go_on.set()
        await asyncio.gather(renewal, *writes)
    assert order.index("renewal") <= 2


async def test_a_lease_passes_on_after_what_was_begun_under_it(stores: Stores) -> None:
    epoch = await stores.leases.acquire("old", 0.01)
    assert epoch == 1

    async def take_over() -> int:
        while (taken := await stores.leases.acquire("new", 60)) is None:
            await asyncio.sleep(0.01)
        return taken

    async with asyncio.timeout(60):
        async with stores.database.write() as connection:
            await check_fence(connection, epoch)
            taking = asyncio.create_task(take_over())
            done, _ = await asyncio.wait({taking}, timeout=1)
            assert not done
        assert await taking == 2


async def test_queue_order_is_that_of_queueing(stores: Stores) -> None:
    ledger = await stores.lead()
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
    ticket = stores.hub.ticket("job")
    waiting = asyncio.create_task(stores.hub.wait(ticket, 60))
    await stores.jobs.request("job", job_states.after_cancel)
    await asyncio.wait_for(waiting, 10)
    assert ticket.is_set()
