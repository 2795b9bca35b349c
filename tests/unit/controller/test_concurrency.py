"""How many groups are collected at once, by what the engines of a pool say."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from podium.core.errors import UnavailableError
from podium.inference.v1.inference_service_pb2 import EngineLoad
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.domain import metrics
from podium_controller.domain.concurrency import ConcurrencyLimit, PoolLoad, pool_load
from podium_controller.training.concurrency import Concurrency
from support.fakes.bench import JOB, Bench
from support.loop_clock import LoopClock

LOOK = 2.0


def load(running: int = 0, waiting: int = 0, places: int = 32, **more: Any) -> EngineLoad:
    return EngineLoad(running=running, waiting=waiting, places=places, **more)


@dataclass
class Pool:
    """Engines at which jobs have groups, each of eight requests that never end."""

    jobs: list[ConcurrencyLimit]
    places: int = 64
    pods: int = 1
    collected: list[int] = field(default_factory=list)

    def look(self, times: int = 1) -> None:
        """So many looks of all jobs; a fifth of the groups ends between two."""
        self.collected = self.collected or [0] * len(self.jobs)
        for _ in range(times):
            for i, job in enumerate(self.jobs):
                rest = math.floor(0.8 * self.collected[i])
                self.collected[i] = max(rest, job.groups)
            found = pool_load(self.loads())
            assert found is not None
            for job, collected in zip(self.jobs, self.collected, strict=True):
                job.look(found, collected, len(self.jobs) * collected / sum(self.collected))

    def loads(self) -> list[EngineLoad]:
        """What the pods say, which have equal parts."""
        each = 8 * sum(self.collected) // self.pods
        places = self.places // self.pods
        return [load(min(each, places), max(0, each - places), places) for _ in range(self.pods)]

    @property
    def waiting(self) -> int:
        return max(0, 8 * sum(self.collected) - self.places)


def test_an_engine_is_filled_and_its_queue_stays_short() -> None:
    pool = Pool([ConcurrencyLimit(2, 100)])
    pool.look(20)
    assert pool.jobs[0].groups >= 8
    for _ in range(100):
        pool.look()
        assert pool.collected[0] * 8 >= pool.places
        assert pool.waiting <= 16


def test_never_fewer_than_a_step_needs_nor_more_than_the_job_allows() -> None:
    busy = ConcurrencyLimit(6, 10)
    Pool([busy], places=8).look(50)
    assert busy.groups == 6
    idle = ConcurrencyLimit(6, 10)
    Pool([idle], places=10_000).look(50)
    assert idle.groups == 10
    assert ConcurrencyLimit(6, 4).groups == 4


def test_a_job_of_large_steps_grows_by_more_at_a_time() -> None:
    large = ConcurrencyLimit(64, 1000)
    large.look(PoolLoad(0, True), 64)
    assert large.groups == 72


def test_jobs_at_one_pool_come_to_equal_parts_of_it() -> None:
    first = ConcurrencyLimit(2, 100)
    pool = Pool([first], places=256)
    pool.look(60)
    assert first.groups >= 30
    second = ConcurrencyLimit(2, 100)
    pool.jobs, pool.collected = [first, second], [*pool.collected, 0]
    pool.look(600)
    larger, smaller = sorted(pool.collected, reverse=True)
    assert 2 * smaller > larger
    assert pool.waiting < 0.5 * pool.places
    # One that goes leaves its part to the other.
    pool.jobs, pool.collected = [second], pool.collected[1:]
    pool.look(60)
    assert second.groups >= 30


def test_pods_that_go_make_it_less_and_pods_that_come_more() -> None:
    job = ConcurrencyLimit(2, 100)
    pool = Pool([job], places=256, pods=4)
    pool.look(60)
    full = job.groups
    pool.places, pool.pods = 64, 1
    pool.look(60)
    assert job.groups < full / 2
    pool.places, pool.pods = 256, 4
    pool.look(60)
    assert job.groups > 0.9 * full


def test_it_grows_only_while_it_is_what_bounds_the_job() -> None:
    job = ConcurrencyLimit(8, 100)
    for _ in range(50):
        job.look(PoolLoad(0, True), 7)
    assert job.groups == 8
    for _ in range(50):
        job.look(PoolLoad(0, False), 8)
    assert job.groups == 8


def test_one_decrease_has_its_time_to_show_before_the_next() -> None:
    job = ConcurrencyLimit(1, 100)
    for _ in range(99):
        job.look(PoolLoad(0, True), 100)
    assert job.groups == 100
    seen = []
    for _ in range(12):
        job.look(PoolLoad(0.5, False), 100)
        seen.append(job.groups)
    assert sorted(set(seen), reverse=True) == [100, 80, 64]


def test_it_shrinks_from_what_is_there_and_not_from_what_might_be() -> None:
    job = ConcurrencyLimit(2, 100)
    job.lift()
    for _ in range(20):
        job.look(PoolLoad(0.5, False), 0)
    # None of the queue is the job's.
    assert job.groups == 100
    job.look(PoolLoad(0.5, False), 10)
    assert job.groups == 8


def test_a_single_look_that_is_out_of_all_bounds_changes_nothing() -> None:
    job = ConcurrencyLimit(2, 100)
    for _ in range(30):
        job.look(PoolLoad(0, True), 100)
    said = pool_load([load(1, 2**31 - 1, 1)])
    assert said is not None
    before = job.groups
    job.look(said, 100)
    assert job.groups == before


@pytest.mark.parametrize(
    "said",
    [
        [],
        [None, None],
        [load(places=0)],
        [load(places=-4)],
        [load(running=-1)],
        [load(waiting=-1)],
        [load(held=-1)],
        [load(kv_cache_usage=math.nan)],
        [load(kv_cache_usage=math.inf)],
        [load(kv_cache_usage=-0.5)],
    ],
)
def test_what_cannot_be_so_is_not_heard(said: list[EngineLoad | None]) -> None:
    assert pool_load(said) is None
    # Nor does it keep the others from being heard.
    assert pool_load([*said, load(4)]) == PoolLoad(0.0, True)


def test_a_pod_that_is_wrong_does_not_outweigh_the_others() -> None:
    full = [load(32, 16), load(32, 16), load(32, 16)]
    endless = load(0, 0, places=2**31 - 1)
    crowded = load(2**31 - 1, 2**31 - 1, 1)
    with_endless, with_crowded = pool_load([*full, endless]), pool_load([load(4)] * 3 + [crowded])
    assert with_endless is not None
    assert with_endless.queue > 0.25
    assert with_crowded is not None
    assert with_crowded.queue < 0.25
    assert with_crowded.has_room


def test_what_waits_for_weights_or_has_a_full_cache_is_no_sign_of_room() -> None:
    assert pool_load([load(0, held=5)]) == PoolLoad(0.0, False)
    assert pool_load([load(4, kv_cache_usage=0.95)]) == PoolLoad(0.0, False)
    assert pool_load([load(32)]) == PoolLoad(0.0, False)
    assert pool_load([load(31)]) == PoolLoad(0.0, True)


class Watched:
    """A job's number, and the pool that it follows."""

    def __init__(self, *, adaptive: bool = True) -> None:
        self.bench = Bench()
        rollout = spec_pb2.RolloutSpec(
            groups_per_step=2, max_concurrent_groups=9, adaptive_concurrency=adaptive
        )
        bench = self.bench
        self.number = Concurrency(JOB, rollout, bench.pool, bench.reporter)
        self.collected = 9
        self.seen: list[int] = []
        self._clock = LoopClock()

    def begin(self) -> None:
        self.number.watch(lambda: self.collected, lambda: self.seen.append(self.number.groups))

    async def looks(self, count: int) -> None:
        """So many looks at the pool, one after the other."""
        for _ in range(count):
            asked = self.bench.calls.count("loads")
            self._clock.advance(LOOK)
            while self.bench.calls.count("loads") == asked:
                await asyncio.sleep(0)
            await settled()

    @property
    def told(self) -> list[str]:
        return [each.message for each in self.bench.events if each.type == pb.EVENT_TYPE_WARNING]


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def no_series_stays() -> Iterator[None]:
    yield
    metrics.forget_job(JOB)


async def test_a_job_follows_its_pool_and_is_told_of_each_change() -> None:
    watched = Watched()
    watched.bench.inference.busy = lambda: [load(4), None]
    assert watched.number.groups == 2
    watched.begin()
    await settled()
    await watched.looks(3)
    assert watched.seen == [3, 4, 5, 6]
    watched.bench.inference.busy = lambda: [load(32, 32)]
    await watched.looks(4)
    assert watched.seen[4:] == [4]
    assert watched.number.adapted == 4
    watched.number.show(6)
    assert metrics.CONCURRENT_GROUPS.labels(JOB)._value.get() == 6
    assert metrics.CONCURRENT_GROUPS_LIMIT.labels(JOB)._value.get() == 4
    await watched.number.close()
    asked = len(watched.bench.calls)
    await settled()
    assert len(watched.bench.calls) == asked
    assert watched.told == []


async def test_engines_that_never_say_leave_the_bound_that_the_job_names() -> None:
    watched = Watched()
    watched.begin()
    await settled()
    await watched.looks(3)
    assert watched.seen == []
    await watched.looks(3)
    assert watched.seen == [9]
    (told,) = watched.told
    assert "do not say how long their queue is" in told
    assert "9 groups" in told
    # They are heard as soon as they speak.
    watched.bench.inference.busy = lambda: [load(32, 32)]
    await watched.looks(6)
    assert watched.number.groups == 7
    await watched.number.close()


async def test_a_pool_that_is_away_changes_nothing() -> None:
    watched = Watched()
    watched.bench.inference.busy = lambda: [load(4)]
    watched.begin()
    await settled()

    def gone() -> Callable[[], None]:
        raise UnavailableError("no pod of the pool is ready")

    watched.bench.before("loads", *[gone] * 8)
    await watched.looks(8)
    assert watched.seen == [3]
    # Nor do pods that have spoken, and were replaced by older ones.
    watched.bench.inference.busy = lambda: [None]
    await watched.looks(8)
    assert watched.seen == [3]
    watched.bench.inference.busy = lambda: [load(4)]
    await watched.looks(1)
    assert watched.seen == [3, 4]
    assert watched.told == []
    await watched.number.close()


async def test_a_watch_that_breaks_is_not_silent() -> None:
    watched = Watched()

    def broken() -> list[EngineLoad | None]:
        raise RuntimeError("a defect")

    watched.bench.inference.busy = broken
    watched.begin()
    watched.begin()
    await settled()
    with pytest.raises(RuntimeError, match="a defect"):
        watched.begin()
    await watched.number.close()


async def test_a_job_that_does_not_ask_for_it_asks_no_engine() -> None:
    watched = Watched(adaptive=False)
    watched.begin()
    await settled()
    assert (watched.number.groups, watched.number.adapted) == (9, None)
    assert "loads" not in watched.bench.calls
    await watched.number.close()
