"""What every store of the controller holds of the room that trajectories take.

As in `store_contract`: a module that imports these tests has a fixture `stores`.
"""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import InternalError
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain import job_states, metrics
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey
from podium_controller.domain.timestamps import now_ns
from podium_controller.scheduling.janitor import Janitor
from podium_controller.store.jobs import NewJob
from podium_controller.store.trajectories import runs_of
from support.stores import Stores, group, lead, new, step

_ALWAYS = 2**63 - 1
_GROUPS = 2


def keeping(job_id: str, versions: int) -> NewJob:
    job = new(job_id, steps=100)
    job.spec.retention.keep_last = versions
    return job


async def committed(stores: Stores, ledger: object, job_id: str, steps: int) -> None:
    """A job that runs, and has committed so many steps of two groups each."""
    await stores.jobs.create(keeping(job_id, 3))
    await ledger.start(job_id, "pool")  # type: ignore[attr-defined]
    for number in range(1, steps + 1):
        ids = []
        for index in range(_GROUPS):
            made = group(number, index)
            made.id = f"{job_id}/s{number}/g{index}"
            ids.append(made.id)
            key = GroupKey(job_id, number, index)
            await ledger.save_group(key, JUDGED, made)  # type: ignore[attr-defined]
        await ledger.commit_step(job_id, step(number, *ids))  # type: ignore[attr-defined]


async def shown(stores: Stores, job_id: str = "job", *, evaluation: bool = False) -> list[int]:
    """The steps of which there are trajectories."""
    page, _ = await stores.jobs.trajectories(
        job_id, evaluation=evaluation, step=None, after=None, limit=1000, max_bytes=10**9
    )
    return sorted({int(each.id.split("/")[1].lstrip("sv").split("-")[0]) for each in page})


async def deleted(stores: Stores, job_id: str = "job") -> list[tuple[int, int, int]]:
    found = await stores.jobs.deleted_trajectories(job_id, evaluation=False, step=None)
    return [(each.first_step, each.last_step, each.groups) for each in found]


async def test_the_bytes_of_groups_are_counted_as_they_come_and_go(stores: Stores) -> None:
    ledger = await lead(stores)
    await stores.jobs.create(new())
    assert await ledger.trajectories.stored_bytes() == 0
    small, large = group(1, 0, attempts=1), group(1, 0, attempts=5)
    key = GroupKey("job", 1, 0)
    await ledger.save_group(key, COLLECTED, large)
    await ledger.save_group(key, JUDGED, small)
    # At once, as groups come.
    others = [group(1, index) for index in range(1, 9)]
    await asyncio.gather(
        *(ledger.save_group(GroupKey("job", 1, i + 1), COLLECTED, g) for i, g in enumerate(others))
    )
    await ledger.save_group(GroupKey("job", 0, 0, "greedy"), COLLECTED, group(0, 0, mode="greedy"))
    sizes = [each.ByteSize() for each in (small, *others, group(0, 0, mode="greedy"))]
    assert await ledger.trajectories.stored_bytes() == sum(sizes)
    await ledger.drop_group(key)
    await ledger.drop_group(key)
    assert await ledger.trajectories.stored_bytes() == sum(sizes[1:])
    await stores.jobs.request("job", job_states.after_cancel)
    await stores.jobs.delete("job")
    assert await ledger.trajectories.stored_bytes() == 0


async def test_what_a_job_in_progress_needs_is_not_spare(stores: Stores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 6)
    # Collected ahead, and an evaluation that is not over.
    await ledger.save_group(GroupKey("job", 7, 0), JUDGED, group(7, 0))
    for version in (0, 5):
        key = GroupKey("job", version, 0, "greedy")
        await ledger.save_group(key, COLLECTED, group(version, 0, mode="greedy"))
    await ledger.commit_evaluation("job", pb.Evaluation(version=0, mode="greedy"))
    # One that keeps a single version may have to begin anew.
    await stores.jobs.create(keeping("single", 1))
    await ledger.save_group(GroupKey("single", 1, 0), JUDGED, _of("single", 1))
    await ledger.start("single", "pool")
    await ledger.commit_step("single", step(1, "single/s1/g0"))

    spare = await ledger.trajectories.spare(_ALWAYS, 100)
    assert [(each.job_id, each.step, each.mode) for each in spare] == [
        ("job", 1, ""),
        ("job", 2, ""),
        ("job", 3, ""),
        ("job", 0, "greedy"),
    ]
    assert [each.step for each in await ledger.trajectories.spare(_ALWAYS, 2)] == [1, 2]
    assert await ledger.trajectories.spare(spare[1].time, 100) == spare[:1]


async def test_ended_jobs_trajectories_go_first(stores: Stores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 4)
    await committed(stores, ledger, "ended", 2)
    await ledger.settle("ended", pb.JOB_STATE_FAILED, reason="WHY", message="because")
    spare = await ledger.trajectories.spare(_ALWAYS, 100)
    assert [(e.job_id, e.step) for e in spare] == [("ended", 1), ("ended", 2), ("job", 1)]


async def test_deleted_trajectories_are_told_of_and_all_else_stays(stores: Stores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 6)
    before = await ledger.trajectories.stored_bytes()
    (first, *_) = await ledger.trajectories.spare(_ALWAYS, 100)
    groups, freed = await ledger.trajectories.delete(first, 1)
    # Half of it is still there, and nobody is shown that half, nor trains on it.
    assert (groups, freed) == (1, before // 12)
    assert await ledger.stored_groups("job", 1) == {}
    assert await shown(stores) == [2, 3, 4, 5, 6]
    assert await deleted(stores) == [(1, 1, 2)]
    # Whoever takes over ends it, even where no limit asks for it any more.
    assert [each.step for each in await ledger.trajectories.spare(0, 100)] == [1]
    while (await ledger.trajectories.delete(first, 1))[0]:
        pass
    assert await ledger.trajectories.spare(0, 100) == []
    assert await ledger.trajectories.stored_bytes() == before - 2 * freed
    for each in await ledger.trajectories.spare(_ALWAYS, 100):
        await ledger.trajectories.delete(each, 10)
    assert await deleted(stores) == [(1, 3, 6)]
    found = await stores.jobs.deleted_trajectories("job", evaluation=False, step=2)
    assert [(each.first_step, each.last_step, each.groups) for each in found] == [(2, 2, 2)]
    assert await stores.jobs.deleted_trajectories("job", evaluation=True, step=None) == []
    assert [each.number for each in (await stores.jobs.steps("job", 0, 10))[0]] == [*range(1, 7)]
    # A write that comes late brings nothing back.
    with pytest.raises(InternalError, match="deleted"):
        await ledger.save_group(GroupKey("job", 1, 0), JUDGED, group(1, 0))
    assert await ledger.commit_step("job", step(7))


async def test_a_janitor_makes_room_down_to_nine_tenths_of_its_limit(stores: Stores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 20)
    stored = await ledger.trajectories.stored_bytes()
    gone = metrics.TRAJECTORY_GROUPS_DELETED.labels("size")._value.get()
    janitor = Janitor(ledger.trajectories, stored, 0)
    await janitor.look()
    assert len(await shown(stores)) == 20
    await Janitor(ledger.trajectories, stored - 1, 0).look()
    left = await ledger.trajectories.stored_bytes()
    there = [await ledger.stored_groups("job", number) for number in range(1, 21)]
    assert left == sum(each.group.ByteSize() for found in there for each in found.values())
    assert 0.8 * stored < left <= 0.9 * stored
    assert metrics.TRAJECTORY_GROUPS_DELETED.labels("size")._value.get() - gone in (4, 6)
    # What is needed stays, however small the limit; two replicas' look at once does no harm.
    await asyncio.gather(*(Janitor(ledger.trajectories, 1, 0).look() for _ in range(2)))
    assert await shown(stores) == [18, 19, 20]
    assert await deleted(stores) == [(1, 17, 34)]


async def test_a_janitor_deletes_what_is_too_old(stores: Stores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 4)
    day = 86400 * 10**9
    await Janitor(ledger.trajectories, 0, 2, lambda: now_ns() + day).look()
    assert await shown(stores) == [1, 2, 3, 4]
    await Janitor(ledger.trajectories, 0, 2, lambda: now_ns() + 3 * day).look()
    assert await shown(stores) == [2, 3, 4]
    await ledger.settle("job", pb.JOB_STATE_SUCCEEDED)
    await Janitor(ledger.trajectories, 0, 2, lambda: now_ns() + 3 * day).look()
    assert await shown(stores) == []
    assert await deleted(stores) == [(1, 4, 8)]


async def test_a_deleted_job_and_a_janitor_do_not_meet(stores: Stores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 2)
    await ledger.settle("job", pb.JOB_STATE_SUCCEEDED)
    spare = await ledger.trajectories.spare(_ALWAYS, 100)
    assert len(spare) == 2
    deleting = [ledger.trajectories.delete(each, 1) for each in spare]
    await asyncio.gather(stores.jobs.delete("job"), *deleting)
    for each in spare:
        assert await ledger.trajectories.delete(each, 10) == (0, 0)
    assert await ledger.trajectories.stored_bytes() == 0
    assert await ledger.trajectories.spare(_ALWAYS, 100) == []


def test_runs_are_of_one_mode_and_without_gaps() -> None:
    def runs(*gone: tuple[int, str, int, int]) -> list[tuple[int, int, str, int, int]]:
        return [
            (e.first_step, e.last_step, e.mode, e.groups, e.delete_time.ToNanoseconds())
            for e in runs_of(gone)
        ]

    assert runs() == []
    assert runs((3, "", 2, 9), (1, "", 2, 7), (2, "", 2, 8), (5, "", 1, 5)) == [
        (1, 3, "", 6, 9),
        (5, 5, "", 1, 5),
    ]
    assert runs((10, "sampled", 1, 3), (0, "sampled", 1, 2), (0, "greedy", 4, 1)) == [
        (0, 0, "greedy", 4, 1),
        (0, 10, "sampled", 2, 3),
    ]


def _of(job_id: str, number: int) -> object:
    made = group(number, 0)
    made.id = f"{job_id}/s{number}/g0"
    return made
