"""The order in which groups of several jobs start at one pool, start by start."""

from __future__ import annotations

import asyncio

import pytest
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.projects import ProjectLimits, Projects


class Pool:
    """Groups that run until they are told to end, in the order in which they started."""

    def __init__(self, episodes: int, **projects: ProjectLimits) -> None:
        self.fair_share = FairShare("p", episodes, Projects(projects))
        self.started: list[str] = []
        self.waits: list[tuple[str, Wait]] = []
        self._ends: list[asyncio.Event] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def ask(self, job: str, groups: int, *, episodes: int = 1, project: str = "") -> None:
        """A job asks for the turns of so many groups."""
        for _ in range(groups):
            work = self._group(job, project or "default", episodes)
            self._tasks.append(asyncio.create_task(work, name=job))
        await settled()

    async def _group(self, job: str, project: str, episodes: int) -> None:
        async def told(wait: Wait) -> None:
            self.waits.append((job, wait))

        async with self.fair_share.share(job, project, episodes, told):
            end = asyncio.Event()
            self.started.append(job)
            self._ends.append(end)
            await end.wait()

    async def finish(self, groups: int = 1) -> None:
        """The groups that have run for longest end, one after the other."""
        for _ in range(groups):
            self._ends.pop(0).set()
            await settled()

    @property
    def running(self) -> list[str]:
        return sorted(self.started[-len(self._ends) :]) if self._ends else []

    async def cancel(self, job: str) -> None:
        for task in self._tasks:
            if task.get_name() == job:
                task.cancel()
        await settled()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def settled() -> None:
    """Everything that can go on without anybody's doing has."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_job_alone_is_not_bound() -> None:
    pool = Pool(2)
    await pool.ask("big", 10)
    assert pool.started == ["big"] * 10
    await pool.close()


async def test_a_job_with_a_thousand_groups_does_not_keep_a_small_one_waiting() -> None:
    pool = Pool(4)
    await pool.ask("other", 1)
    await pool.ask("big", 1000)
    assert pool.started == ["other", "big", "big", "big"]
    await pool.ask("small", 6)
    # Its first starts at once, though there is no room.
    assert pool.started[4:] == ["small"]
    await pool.finish()
    # `other` has ended. Each of the two that are left has a part of two, one of them a group more.
    assert pool.running == ["big", "big", "big", "small", "small"]
    await pool.finish()
    assert pool.running == ["big", "big", "small", "small"]
    before = len(pool.started)
    await pool.finish(8)
    assert pool.started[before:] == ["big", "big", "small", "small"] * 2
    await pool.close()


async def test_equal_jobs_take_turns() -> None:
    pool = Pool(1)
    for job in "abc":
        await pool.ask(job, 4)
    assert pool.started == ["a", "a", "a", "a", "b", "c"]
    await pool.finish(10)
    # The first was alone when it came, and has had its groups.
    assert pool.started[6:] == ["b", "c"] * 3
    await pool.close()


async def test_a_large_group_is_not_overtaken_for_ever_by_small_ones() -> None:
    pool = Pool(8)
    await pool.ask("large", 3, episodes=4)
    await pool.ask("small", 30, episodes=1)
    assert pool.started == ["large"] * 3 + ["small"] * 4
    await pool.ask("large", 2, episodes=4)
    await pool.finish(2)
    # Its part is four episodes, which its third group has: it waits for that, and no longer.
    assert pool.started[7:] == []
    await pool.finish()
    assert pool.started[7:] == ["large"]
    await pool.finish(4)
    assert pool.started[8:] == ["small"] * 4
    await pool.finish()
    assert pool.started[12:] == ["large"]
    await pool.close()


async def test_projects_share_by_weight_however_many_jobs_each_has() -> None:
    pool = Pool(
        6, research=ProjectLimits(maxPoolShare=1.0), support=ProjectLimits(maxPoolShare=0.5)
    )
    await pool.ask("one", 1, project="default")
    await pool.ask("s", 100, project="support")
    for job in ("r1", "r2", "r3", "r4"):
        await pool.ask(job, 100, project="research")
    await pool.finish(40)
    running = pool.running
    assert sum(job.startswith("r") for job in running) == 4
    assert running.count("s") == 2
    assert {running.count(f"r{i}") for i in range(1, 5)} == {1}
    await pool.close()


async def test_a_project_has_no_more_than_its_share_even_alone_and_says_so() -> None:
    pool = Pool(8, small=ProjectLimits(maxPoolShare=0.25))
    await pool.ask("a", 5, project="small")
    assert pool.started == ["a", "a"]
    assert all(wait == NOTHING for _, wait in pool.waits)
    await pool.ask("b", 1, project="small")
    job, wait = pool.waits[-1]
    assert (job, wait.reason) == ("b", "PROJECT_POOL_SHARE")
    assert "'small'" in wait.message
    assert "maxPoolShare of 0.25" in wait.message
    await pool.ask("c", 3)
    assert pool.started[2:] == ["c", "c", "c"]
    await pool.finish()
    # Of the two jobs of the project the one that has nothing.
    assert pool.started[5:] == ["b"]
    assert pool.waits[-1] == ("b", NOTHING)
    await pool.close()


async def test_a_group_larger_than_its_projects_share_runs_by_itself() -> None:
    pool = Pool(8, small=ProjectLimits(maxPoolShare=0.25))
    await pool.ask("a", 2, episodes=4, project="small")
    assert pool.started == ["a"]
    await pool.finish()
    assert pool.started == ["a", "a"]
    await pool.close()


@pytest.mark.parametrize("waiting", [True, False])
async def test_who_is_cancelled_gives_back_what_he_has_and_his_place(waiting: bool) -> None:
    pool = Pool(2, small=ProjectLimits(maxPoolShare=0.5))
    await pool.ask("a", 1, project="small")
    await pool.ask("b", 1, project="small")
    await pool.ask("c", 1, project="small")
    assert pool.started == ["a"]
    await pool.cancel("b" if waiting else "a")
    assert pool.started == (["a"] if waiting else ["a", "b"])
    if waiting:
        await pool.finish()
        assert pool.started == ["a", "c"]
    await pool.close()


async def test_what_a_job_has_by_its_part_of_all_is_told_by_its_projects_weight() -> None:
    pool = Pool(8, small=ProjectLimits(maxPoolShare=0.5))
    assert pool.fair_share.part("a") == 1
    await pool.ask("a", 2, project="small")
    assert pool.fair_share.part("a") == 1
    await pool.ask("b", 6)
    # A third of eight is the one's part, and two thirds the other's.
    assert pool.fair_share.part("a") == pytest.approx(0.75)
    assert pool.fair_share.part("b") == pytest.approx(1.125)
    await pool.cancel("a")
    assert (pool.fair_share.part("a"), pool.fair_share.part("b")) == (1, 1)
    await pool.close()
