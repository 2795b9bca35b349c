"""A job ends as if nothing had befallen it, whatever befell it: a few hundred seeds.

`make simulate` runs as many as are asked for. A seed that fails tells what befell its job, and
is the same each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium_controller.domain.errors import DatabaseUnavailableError
from podium_controller.training import loop as loop_module
from podium_controller.training.group_sources import RolloutGroups
from prometheus_client import REGISTRY
from simulation.befalls import freeze, lose_answers
from simulation.loop import StuckError, VirtualLoop
from simulation.run import simulate
from simulation.world import World
from support.fakes.ledger import MemoryLedger

_SEEDS = 200
FOUND = (
    # A version that a stopped controller's trainer stored late: VERSION_EXISTS.
    50808,
)
"""Seeds are of the simulation as it is: each fault has a test of its component too."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What befalls a job is logged thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_what_befalls_a_job_costs_it_nothing_but_time() -> None:
    before = series_of_jobs()
    outcomes = [simulate(seed) for seed in range(_SEEDS)]
    wrong = [str(outcome) for outcome in outcomes if outcome.wrong]
    assert not wrong, "\n".join(wrong)
    assert sum(outcome.controllers for outcome in outcomes) > 2 * _SEEDS
    # However a job's runs ended, and whoever led then: nothing of it is shown any more.
    assert series_of_jobs() <= before


def series_of_jobs() -> set[tuple[str, str]]:
    """What this process shows of single jobs."""
    return {
        (sample.name, sample.labels["job_id"])
        for family in REGISTRY.collect()
        for sample in family.samples
        if "job_id" in sample.labels
    }


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_a_fault_finds_it_no_more(seed: int) -> None:
    assert not simulate(seed).wrong


def test_a_seed_is_the_same_each_time() -> None:
    for seed in range(5):
        first, second = simulate(seed), simulate(seed)
        assert (first.trace, first.work) == (second.trace, second.work)


class CommitsTwice(MemoryLedger):
    """Commits a step once more when the answer was lost, whether it was committed or not."""

    async def commit_step(self, job_id: str, step: pb.Step) -> bool:
        try:
            return await super().commit_step(job_id, step)
        except DatabaseUnavailableError:
            row = self._database.jobs[job_id]
            row.completed_steps = step.number - 1
            return await super().commit_step(job_id, step)


class Unfenced(MemoryLedger):
    """Writes under a lease that is another's by now."""

    async def _write(self, work: Callable[[], Any]) -> Any:
        return await self._database.transact(work)


class Forgets(RolloutGroups):
    """Takes what a step has already for all that it is to have."""

    async def count(self, step: int) -> int:
        stored = await self._source.reporter._ledger.stored_groups(self._job_id, step)
        return len(stored) or await super().count(step)


class WorldOfDoubleCommits(World):
    ledger = CommitsTwice
    befalls = (lose_answers,)


class WorldWithoutFence(World):
    ledger = Unfenced
    befalls = (freeze,)


def first_found(world: type[World], most: int = _SEEDS) -> str:
    """What the first seed says that finds something wrong."""
    for seed in range(most):
        outcome = simulate(seed, world)
        if outcome.wrong:
            return "\n".join(outcome.wrong)
    raise AssertionError(f"{most} seeds find nothing")


def test_a_double_commit_is_found() -> None:
    assert "committed" in first_found(WorldOfDoubleCommits)


def test_a_skipped_fence_is_found() -> None:
    assert "the database has" in first_found(WorldWithoutFence)


def test_a_lost_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "RolloutGroups", Forgets)
    assert "g0" in first_found(World)


def test_time_is_that_of_the_next_timer() -> None:
    loop = VirtualLoop(shuffled=False)
    seen: list[float] = []
    loop.call_later(3600.0, lambda: seen.append(loop.time()))
    loop.call_later(1.0, lambda: seen.append(loop.time()))
    loop.run(lambda: len(seen) == 2, until=1e9, most=100)
    assert seen == [1.0, 3600.0]


def test_who_waits_for_ever_is_told() -> None:
    loop = VirtualLoop()
    waiting = loop.create_future()
    with pytest.raises(StuckError):
        loop.run(waiting.done, until=1e9, most=100)
