"""What running jobs use of trainers and pools, by a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from podium.core.errors import UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_controller.domain.budget import ProjectUse
from podium_controller.domain.errors import DatabaseUnavailableError, LeaseLostError
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import NOTHING, Wait
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool
from podium_controller.pools.projects import ProjectLimits, Projects
from podium_controller.scheduling.meter import Meter
from prometheus_client import REGISTRY


class Book:
    """What is reported, once for each number; fails as it is told to."""

    def __init__(self) -> None:
        self.used: dict[str, pb.Usage] = {}
        self.numbers: list[int] = []
        self.reads = 0
        self.fails: list[tuple[bool, Exception]] = []
        """Whether the report is counted all the same, and what is raised."""
        self.projects: dict[str, pb.Usage] = {}

    async def report(self, job_id: str, number: int, used: pb.Usage) -> None:
        counted, error = self.fails.pop(0) if self.fails else (True, None)
        if counted and number not in self.numbers:
            self.numbers.append(number)
            total = self.used.setdefault(job_id, pb.Usage())
            for field, value in used.ListFields():
                setattr(total, field.name, getattr(total, field.name) + value)
        if error:
            raise error

    async def totals(self, job_ids: Any) -> dict[str, pb.Usage]:
        self.reads += 1
        found = {}
        for id_ in job_ids:
            found[id_] = pb.Usage()
            found[id_].CopyFrom(self.used.get(id_, pb.Usage()))
        return found

    async def of_projects(self, since: int, project: str = "") -> dict[str, pb.Usage]:
        return {name: used for name, used in self.projects.items() if project in ("", name)}


class Inference:
    """Says how many GPUs it has."""

    def __init__(self) -> None:
        self.answer: Callable[[], int] = lambda: 2

    async def gpus(self) -> int:
        return self.answer()


class World:
    """A meter, a pool of two GPUs, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.book = Book()
        self.inference = Inference()
        share = FairShare("p", 100, Projects(), lambda: self.now)
        self.pool = Pool("p", self.inference, share)  # type: ignore[arg-type]
        limits = {"lab": ProjectLimits(maxJudgeCost=4, maxTotalJudgeCost=8, maxGpuHours=0)}
        self.meter = Meter(self.book, lambda: self.now, Projects(limits))
        self.task: asyncio.Task[None] | None = None

    def begin(self, job_id: str, *, gpus: int = 4, client: bool = False) -> Any:
        spec = spec_pb2.JobSpec(client=spec_pb2.ClientSpec() if client else None)
        record = JobRecord(job_id, spec, pb.JOB_STATE_RUNNING, 0, "", "p", NOTHING)
        return self.meter.begin(record, self.pool, "default", gpus)

    async def asked(self) -> None:
        """The meter has looked round once, and asked the pool."""
        before = self.book.reads
        self.task = asyncio.create_task(self.meter.run())
        while self.book.reads == before:
            await asyncio.sleep(0)

    async def episodes(self, job_id: str, amount: int, until: Awaitable[Any]) -> None:
        async with self.pool.fair_share.share(job_id, "default", amount, _told):
            await until

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


async def _told(wait: Wait) -> None:
    pass


@pytest.fixture
async def world() -> Any:
    made = World()
    yield made
    await made.close()


async def test_a_trainer_counts_from_when_it_is_held_times_its_gpus(world: World) -> None:
    meter = world.begin("a")
    await world.asked()
    world.now += 100
    meter.hold_trainer()
    world.now += 10
    # Opened again after a loss: it was held all the time.
    meter.hold_trainer()
    world.now += 5
    spent = await meter.spent()
    assert (spent.trainer_seconds, spent.trainer_gpu_seconds) == (15, 60)
    # Alone at its pool, all of the pool's time is the job's.
    assert (spent.pool_seconds, spent.pool_gpu_seconds) == (115, 230)
    world.now += 1
    await meter.close()
    await meter.close()
    assert world.book.used["a"].trainer_seconds == 16


async def test_a_pool_is_divided_by_episodes_in_flight(world: World) -> None:
    first, second = world.begin("a"), world.begin("b")
    await world.asked()
    over = asyncio.Event()
    running = [
        asyncio.create_task(world.episodes("a", 3, over.wait())),
        asyncio.create_task(world.episodes("b", 1, over.wait())),
    ]
    await asyncio.sleep(0)
    world.now += 8
    over.set()
    await asyncio.gather(*running)
    # In equal parts while nobody samples.
    world.now += 2
    a, b = await first.spent(), await second.spent()
    assert (a.pool_seconds, b.pool_seconds) == (6 + 1, 2 + 1)
    await first.close()
    world.now += 4
    assert (await second.spent()).pool_seconds == 3 + 4


async def test_a_job_whose_client_samples_has_an_equal_part(world: World) -> None:
    jobs = [world.begin("a"), world.begin("b"), world.begin("c", client=True)]
    await world.asked()
    over = asyncio.Event()
    running = asyncio.create_task(world.episodes("a", 3, over.wait()))
    await asyncio.sleep(0)
    world.now += 9
    over.set()
    await running
    spent = [(await each.spent()).pool_seconds for each in jobs]
    assert spent == pytest.approx([6, 0, 3])


async def test_time_waits_until_the_pool_says_how_many_gpus_it_has(world: World) -> None:
    def away() -> int:
        raise UnavailableError("away")

    world.inference.answer = away
    meter = world.begin("a")
    await world.asked()
    world.now += 10
    assert (await meter.spent()).pool_seconds == 0
    await world.close()
    again = world.begin("a")
    world.inference.answer = lambda: 8
    await world.asked()
    world.now += 1
    assert (await again.spent()).pool_gpu_seconds == 8


@pytest.mark.parametrize("counted", [True, False])
async def test_a_report_whose_fate_is_unknown_counts_once(world: World, counted: bool) -> None:
    meter = world.begin("a")
    await world.asked()
    meter.hold_trainer()
    world.now += 10
    world.book.fails = [(counted, DatabaseUnavailableError("gone"))]
    # What could not be written counts against a budget all the same.
    assert (await meter.spent()).trainer_seconds == (20 if counted else 10)
    world.now += 5
    assert (await meter.spent()).trainer_seconds == 15


async def test_the_last_report_may_fail_and_the_run_ends_all_the_same(world: World) -> None:
    errors: list[Exception] = [DatabaseUnavailableError("gone"), LeaseLostError("taken")]
    for error in errors:
        meter = world.begin("a")
        meter.hold_trainer()
        world.now += 1
        world.book.fails = [(False, error)]
        await meter.close()
    assert world.book.used == {}


async def test_series_show_the_whole_of_it_and_go_with_the_run(world: World) -> None:
    world.book.used["a"] = pb.Usage(sampled_tokens=70, trainer_gpu_seconds=5, judge_cost=0.25)

    def shown(name: str, **labels: str) -> float | None:
        labels = {"job_id": "a", "project": "default", **labels}
        return REGISTRY.get_sample_value(f"podium_controller_job_{name}_total", labels)

    meter = world.begin("a")
    await world.asked()
    assert shown("tokens", kind="sampled") == 70
    assert shown("gpu_seconds", kind="trainer") == 5
    assert shown("judge_cost_usd") == 0.25
    await meter.close()
    assert shown("tokens", kind="sampled") is None
    assert shown("gpu_seconds", kind="trainer") is None
    assert shown("judge_cost_usd") is None


async def test_how_much_of_a_project_s_budgets_is_used_is_shown(world: World) -> None:
    world.book.projects = {"lab": pb.Usage(judge_cost=2)}
    world.begin("a")
    await world.asked()

    def shown(bound: str) -> float | None:
        labels = {"project": "lab", "bound": bound}
        return REGISTRY.get_sample_value("podium_controller_project_budget_used_ratio", labels)

    assert (shown("maxJudgeCost"), shown("maxTotalJudgeCost")) == (0.5, 0.25)
    # Of nothing, all is used; what has no bound has no series.
    assert (shown("maxGpuHours"), shown("maxTotalGpuHours")) == (1, None)


async def test_a_job_asks_what_its_project_has_used_in_month_and_in_all(world: World) -> None:
    world.book.projects = {"lab": pb.Usage(judge_cost=2)}
    meter = world.begin("a")
    used = await meter.spent_by_project("lab", in_all=True)
    assert used == ProjectUse(pb.Usage(judge_cost=2), pb.Usage(judge_cost=2))
    assert (await meter.spent_by_project("lab", in_all=False)).total == pb.Usage()
