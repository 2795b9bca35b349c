"""What every store holds of groups that wait, and of the steps that take them.

A module that imports these tests has a fixture `stores`; see `support.store_contract`.
"""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import InternalError
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1.judge_service_pb2 import JudgeUsage
from podium.types.v1 import trajectory_pb2
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.ports import COLLECTED, CONSUMED, JUDGED, GroupKey, LeaderLedger
from podium_controller.domain.taken import Drawn
from support.stores import Stores, lead, new, step


async def waiting(ledger: LeaderLedger, *numbers: int) -> list[trajectory_pb2.Group]:
    """Groups that no step has, stored."""
    found = []
    for number in numbers:
        key = GroupKey("job", WAITING_ROOM, number)
        made = trajectory_pb2.Group(id=key.group_id, job_id="job")
        made.trajectories.add(id=f"{made.id}/t0", group_id=made.id)
        await ledger.save_group(key, COLLECTED, made)
        await ledger.save_judged(key, made, JudgeUsage(), "2026-11")
        found.append(made)
    return found


async def test_a_step_takes_groups_once_and_whole(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    made = await waiting(ledger, 0, 1, 2, 3)
    assert await ledger.drawn("job") is None
    assert sorted(await ledger.stored_groups("job", WAITING_ROOM)) == [0, 1, 2, 3]
    assert await stores.jobs.groups_collected("job", 1) == 4
    taken = [made[2], made[0]]
    for each in taken:
        each.step = 1
    await ledger.take_groups("job", taken, Drawn(1, "state"), last=False)
    stored = await ledger.stored_groups("job", 1)
    assert [(n, each.status, each.group.id) for n, each in sorted(stored.items())] == [
        (0, JUDGED, "job/d2"),
        (1, JUDGED, "job/d0"),
    ]
    assert [each.group.step for each in stored.values()] == [1, 1]
    assert await ledger.drawn("job") == Drawn(1, "state")
    assert sorted(await ledger.stored_groups("job", WAITING_ROOM)) == [1, 3]
    # It has its groups, and no others; and what it has is nobody else's.
    for wrong, step_ in (([made[1]], 1), ([made[1]], 3), ([made[0]], 2)):
        with pytest.raises(InternalError):
            await ledger.take_groups("job", wrong, Drawn(step_, ""), last=False)
    with pytest.raises(InternalError):
        await ledger.save_group(GroupKey("job", WAITING_ROOM, 0), COLLECTED, made[0])
    await ledger.drop_group(GroupKey("job", WAITING_ROOM, 0))
    assert len(await ledger.stored_groups("job", 1)) == 2
    await ledger.commit_step("job", step(1, "job/d2", "job/d0"))
    assert {s.status for s in (await ledger.stored_groups("job", 1)).values()} == {CONSUMED}
    with pytest.raises(InternalError, match="does not wait"):
        await ledger.take_groups("job", [made[1], made[0]], Drawn(2, ""), last=False)
    assert await ledger.drawn("job") == Drawn(1, "state")
    assert sorted(await ledger.stored_groups("job", WAITING_ROOM)) == [1, 3]


async def test_the_last_step_forgets_what_no_step_will_take(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    made = await waiting(ledger, 0, 1, 2)
    await ledger.take_groups("job", made[:1], Drawn(1, ""), last=True)
    assert await ledger.stored_groups("job", WAITING_ROOM) == {}
    assert len(await ledger.stored_groups("job", 1)) == 1
    everything = (await ledger.stored_groups("job", 1))[0].group.ByteSize()
    assert await ledger.trajectories.stored_bytes() == everything


async def test_a_group_whose_save_is_cancelled_is_not_stored_after_the_last_step(
    stores: Stores,
) -> None:
    """Cancelled while its commit is on its way, it holds what the step has to wait for."""
    ledger = await lead(stores)
    cuts = 10
    for cut in range(cuts + 1):
        id_ = f"job-{cut}"
        await stores.jobs.create(new(id_))
        await ledger.start(id_, "pool")
        first, second = (
            trajectory_pb2.Group(id=GroupKey(id_, WAITING_ROOM, number).group_id, job_id=id_)
            for number in (0, 1)
        )
        saving = asyncio.ensure_future(
            ledger.save_group(GroupKey(id_, WAITING_ROOM, 0), COLLECTED, first)
        )
        # As many turns of the loop as one takes that is left alone.
        turns = 0
        while not saving.done():
            await asyncio.sleep(0)
            turns += 1
        saving = asyncio.ensure_future(
            ledger.save_group(GroupKey(id_, WAITING_ROOM, 1), COLLECTED, second)
        )
        for _ in range(turns * cut // cuts):
            await asyncio.sleep(0)
        await cancel_and_wait(saving)
        await ledger.take_groups(id_, [first], Drawn(1, ""), last=True)
    for cut in range(cuts + 1):
        assert await ledger.stored_groups(f"job-{cut}", WAITING_ROOM) == {}


async def test_who_reads_on_sees_a_group_with_the_step_that_takes_it(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    made = await waiting(ledger, 0, 1)

    async def shown(number: int | None = None) -> list[str]:
        found, _ = await stores.jobs.trajectories(
            "job", evaluation=False, step=number, after=None, limit=10, max_bytes=10_000
        )
        return [each.id for each in found]

    assert await shown() == []
    assert await shown(WAITING_ROOM) == ["job/d0/t0", "job/d1/t0"]
    await ledger.take_groups("job", made[1:], Drawn(1, ""), last=False)
    assert await shown() == ["job/d1/t0"]
    assert await shown(1) == ["job/d1/t0"]


async def test_a_deleted_job_has_drawn_nothing(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    await ledger.start("job", "pool")
    made = await waiting(ledger, 0)
    await ledger.take_groups("job", made, Drawn(1, ""), last=False)
    await ledger.settle("job", pb.JOB_STATE_FAILED)
    await stores.jobs.delete("job")
    assert await ledger.drawn("job") is None
