"""Limits that stand still for what is queued."""

from __future__ import annotations

import asyncio
import time

import pytest
from podium.core.time_limits import Clock, clocked, queued, time_left, time_limit

SHORT = 0.05


async def until_over(seconds: float) -> None:
    """Longer than so many seconds by any clock."""
    begun = time.monotonic()
    while time.monotonic() <= begun + seconds:
        await asyncio.sleep(seconds)


async def test_work_ends_at_its_limit() -> None:
    with pytest.raises(TimeoutError):
        async with time_limit(SHORT) as limit:
            await asyncio.Event().wait()
    assert limit.expired()


async def test_a_queue_does_not_count_and_the_rest_does() -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async with time_limit(SHORT):
            with queued():
                await until_over(2 * SHORT)
            reached.set()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()
    assert reached.is_set()


async def test_no_limit_ends_nothing() -> None:
    async with time_limit(None):
        assert time_left() == float("inf")
        with queued():
            await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_all_limits_around_stand_still_in_tasks_of_the_work_too() -> None:
    async def wait() -> None:
        with queued():
            await until_over(2 * SHORT)

    async with time_limit(SHORT), time_limit(SHORT):
        await asyncio.gather(wait(), wait())


async def test_the_time_in_queues_has_a_limit_of_its_own() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        async with time_limit(SHORT, of_queue=True):
            await until_over(2 * SHORT)
            begun.set()
            for _ in range(100):
                with queued():
                    await until_over(SHORT / 10)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()
    assert begun.is_set()


async def test_what_was_queued_when_its_limit_ended_is_let_be() -> None:
    """A task that outlives the block, and one that the limit itself cuts."""
    left = asyncio.Event()

    async def outlives() -> None:
        with queued():
            await left.wait()

    async with time_limit(60):
        task = asyncio.create_task(outlives())
        await asyncio.sleep(0)
    left.set()
    await task

    async def is_cut() -> None:
        async with time_limit(SHORT, of_queue=True):
            with queued():
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await is_cut()


async def test_who_asks_learns_the_least_that_is_left() -> None:
    assert time_left() == float("inf")
    async with time_limit(600, of_queue=True), time_limit(50), time_limit(100):
        assert 40 < time_left() <= 50
        with queued():
            first = time_left()
            await until_over(SHORT)
            assert time_left() == first
    assert time_left() == float("inf")


async def test_a_clock_tells_of_the_first_queue_and_of_the_last() -> None:
    told: list[bool] = []
    with clocked(Clock(1.0, turned=told.append)):
        with queued(), queued():
            assert told == [True]
        with queued():
            pass
    assert told == [True, False, True, False]
