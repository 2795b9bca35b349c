"""What a commit touches, and what it leaves alone; the fence under which it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.core.errors import InternalError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.errors import LeaseLostError
from podium_controller.domain.identifiers import evaluation_group, training_group
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import COLLECTED, CONSUMED, JUDGED, GroupKey
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.store import Database, JobStore, LeaseStore, SqlLedger
from podium_controller.store.jobs import NewJob
from support.empty_database import empty_database

MINUTE = 60.0


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = Database(await empty_database(tmp_path))
    spec = spec_pb2.JobSpec(base_model="m", training=spec_pb2.TrainingSpec(steps=5))
    await JobStore(made, Notifications()).create(NewJob("job", spec, "", "digest", ""))
    yield made
    await made.close()


async def lead(database: Database, holder: str = "test") -> SqlLedger:
    epoch = await LeaseStore(database).acquire(holder, MINUTE)
    assert epoch is not None
    return SqlLedger(database, Notifications(), epoch)


@pytest.fixture
async def ledger(database: Database) -> SqlLedger:
    made = await lead(database)
    assert await made.start("job", "pool")
    return made


def step(number: int, *group_ids: str) -> pb.Step:
    now = timestamp(now_ns())
    return pb.Step(
        number=number, version=number, group_ids=group_ids, start_time=now, commit_time=now
    )


async def store(ledger: SqlLedger, key: GroupKey, status: str = JUDGED) -> str:
    number, position = key.step, key.position
    name = (
        evaluation_group("job", number, key.mode, position)
        if key.mode
        else training_group("job", number, position)
    )
    await ledger.save_group(key, status, trajectory_pb2.Group(id=name, job_id="job", step=number))
    return name


async def statuses(ledger: SqlLedger, number: int, mode: str = "") -> list[str]:
    stored = await ledger.stored_groups("job", number, mode)
    return [stored[position].status for position in sorted(stored)]


async def test_a_step_consumes_its_own_groups_and_no_others(ledger: SqlLedger) -> None:
    trained = [await store(ledger, GroupKey("job", 1, position)) for position in (0, 1)]
    await store(ledger, GroupKey("job", 1, 2))
    await store(ledger, GroupKey("job", 2, 0), COLLECTED)
    await store(ledger, GroupKey("job", 1, 0, "greedy"))
    assert await ledger.commit_step("job", step(1, *trained))
    assert await statuses(ledger, 1) == [CONSUMED, CONSUMED, JUDGED]
    assert await statuses(ledger, 2) == [COLLECTED]
    assert await statuses(ledger, 1, "greedy") == [JUDGED]


async def test_an_evaluation_consumes_the_groups_of_its_mode_and_version(
    ledger: SqlLedger,
) -> None:
    for number, mode in ((1, "sampled"), (1, "greedy"), (2, "sampled")):
        await store(ledger, GroupKey("job", number, 0, mode))
    await store(ledger, GroupKey("job", 1, 0))
    await ledger.commit_evaluation("job", pb.Evaluation(version=1, mode="sampled"))
    assert await statuses(ledger, 1, "sampled") == [CONSUMED]
    assert await statuses(ledger, 1, "greedy") == [JUDGED]
    assert await statuses(ledger, 2, "sampled") == [JUDGED]
    assert await statuses(ledger, 1) == [JUDGED]


async def test_a_commit_is_made_once_and_in_order(ledger: SqlLedger) -> None:
    name = await store(ledger, GroupKey("job", 1, 0))
    assert await ledger.commit_step("job", step(1, name))
    # The reply was lost, and the same commit comes again.
    assert not await ledger.commit_step("job", step(1, name))
    with pytest.raises(InternalError, match="cannot be its next"):
        await ledger.commit_step("job", step(3))


async def test_what_has_trained_is_neither_dropped_nor_stored_again(ledger: SqlLedger) -> None:
    key = GroupKey("job", 1, 0)
    await ledger.commit_step("job", step(1, await store(ledger, key)))
    await ledger.drop_group(key)
    with pytest.raises(InternalError, match="is consumed"):
        await store(ledger, key)
    assert await statuses(ledger, 1) == [CONSUMED]


async def test_the_former_leader_writes_nothing(database: Database, ledger: SqlLedger) -> None:
    await LeaseStore(database).release("test", 1)
    successor = await lead(database, "successor")
    with pytest.raises(LeaseLostError):
        await store(ledger, GroupKey("job", 1, 0))
    assert await statuses(successor, 1) == []


async def test_a_lease_belongs_to_its_holder_and_its_token(database: Database) -> None:
    """The same process may lose it and take it anew: what it began before has lost it."""
    leases = LeaseStore(database)
    first = await leases.acquire("one", MINUTE)
    assert first is not None
    await leases.release("one", first)
    second = await leases.acquire("one", MINUTE)
    assert second is not None
    assert second > first
    assert not await leases.renew("one", first, MINUTE)
    assert not await leases.renew("two", second, MINUTE)
    for holder, epoch in (("one", first), ("two", second)):
        await leases.release(holder, epoch)
        assert await leases.acquire("three", MINUTE) is None
    assert await leases.renew("one", second, MINUTE)
