"""Whose turn it is at a trainer that jobs share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from podium.core.errors import RequestCancelledError
from podium_trainer.domain.fair_lock import FairLock


async def settle() -> None:
    """Lets every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def order_of(lock: FairLock, calls: Sequence[str]) -> list[str]:
    """In which order calls `project/job` compute that all come while another one does."""
    order: list[str] = []

    async def call(name: str) -> None:
        project, _, job = name.partition("/")
        async with lock.hold(project, job):
            order.append(name)

    async with lock.hold("x", "x/holder"):
        tasks = [asyncio.create_task(call(name)) for name in calls]
        await settle()
    await asyncio.gather(*tasks)
    return order


async def test_a_project_with_ten_jobs_does_not_starve_one_with_one() -> None:
    many = [f"a/{number}" for number in range(10)]
    order = await order_of(FairLock(), [*many, "b/0", "b/0"])
    assert order == ["a/0", "b/0", "a/1", "b/0", *many[2:]]


async def test_who_was_away_in_between_still_comes_before_who_just_computed() -> None:
    """A job asks again only after its agents acted; a queue that forgot it would serve a twice."""
    lock = FairLock()
    order: list[str] = []
    done = asyncio.Event()

    async def busy(job: str) -> None:
        for _ in range(3):
            async with lock.hold("a", job):
                order.append("a")
                await settle()

    async def thinking() -> None:
        for _ in range(2):
            async with lock.hold("b", "one"):
                order.append("b")
            # It is away while one of a computes, for less long than that takes.
            await asyncio.sleep(0)
        done.set()

    await asyncio.gather(busy("1"), busy("2"), busy("3"), thinking())
    assert done.is_set()
    assert order[:4] == ["a", "b", "a", "b"]


async def test_jobs_of_a_project_take_turns() -> None:
    order = await order_of(FairLock(), ["a/1", "a/1", "a/1", "a/2", "a/3", "a/2"])
    assert order == ["a/1", "a/2", "a/3", "a/1", "a/2", "a/1"]


async def test_who_comes_anew_each_time_gains_nothing() -> None:
    lock = FairLock()
    order = await order_of(lock, ["a/1", "b/1"])
    lock.forget("a", "1")
    # As after a Close and an Open: though it asks first, b computed longer ago.
    assert order + await order_of(lock, ["a/1", "b/1"]) == ["a/1", "b/1", "b/1", "a/1"]


async def test_one_holds_it_at_a_time_and_an_error_gives_it_back() -> None:
    lock = FairLock()
    inside = 0

    async def call(number: int) -> None:
        nonlocal inside
        async with lock.hold("a", str(number)):
            inside += 1
            assert inside == 1
            await settle()
            inside -= 1
            raise ValueError

    results = await asyncio.gather(*map(call, range(5)), return_exceptions=True)
    assert [type(it) for it in results] == [ValueError] * 5
    async with lock.hold("a", "0"):
        pass


@pytest.mark.parametrize("way", ["event", "task"])
async def test_who_gives_up_waiting_is_passed_over(way: str) -> None:
    lock, given_up = FairLock(), asyncio.Event()
    entered = False

    async def call() -> None:
        nonlocal entered
        async with lock.hold("a", "1", given_up):
            entered = True

    async with lock.hold("b", "1"):
        task = asyncio.create_task(call())
        await settle()
        given_up.set() if way == "event" else task.cancel()
        with pytest.raises(RequestCancelledError if way == "event" else asyncio.CancelledError):
            await task
    assert await order_of(lock, ["a/2"]) == ["a/2"]
    assert not entered


async def test_who_is_called_in_the_moment_it_is_cancelled_passes_the_lock_on() -> None:
    lock = FairLock()

    async def call() -> None:
        async with lock.hold("a", "1"):
            raise AssertionError

    held = lock.hold("b", "1")
    await held.__aenter__()
    task = asyncio.create_task(call())
    await settle()
    await held.__aexit__(None, None, None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await order_of(lock, ["a/2"]) == ["a/2"]


async def test_what_is_forgotten_leaves_nothing_behind() -> None:
    lock = FairLock()
    await order_of(lock, [f"p{number}/1" for number in range(100)])
    for number in range(100):
        lock.forget(f"p{number}", "1")
    lock.forget("x", "x/holder")
    lock.forget("x", "never came")
    assert not any(vars(lock)[name] for name in ("_projects", "_jobs", "_waiting"))
