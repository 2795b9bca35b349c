"""A job ends as if nothing had befallen it, whatever befell it: some seeds.

CI runs a few hundred, and `make simulate` as many as are asked for. A seed that fails tells what
befell its job, and is the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.coach import CoachEvent
from podium_controller.domain.errors import DatabaseUnavailableError
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.taken import Drawn
from podium_controller.training import batches as batches_module
from podium_controller.training import collector as collector_module
from podium_controller.training.group_sources import RolloutGroups
from podium_controller.training.ready_first import ReadyFirst
from podium_controller.training.resume import Resume
from podium_controller.training.step_runner import StepRunner
from prometheus_client import REGISTRY
from simulation import network
from simulation.befalls import die, freeze, lose_answers
from simulation.loop import StuckError, VirtualLoop
from simulation.record import faults_of
from simulation.run import live, simulate, undisturbed
from simulation.scenario import Shape, shape_of
from simulation.world import World, clocks_of
from support.fakes import trajectories
from support.fakes.ledger import MemoryLedger
from support.full import long

_SEEDS = 200
FOUND = (
    # The load of a controller that was gone put the pool back: STALENESS_EXCEEDED.
    484,
    # A registry that was away while the last state was stored: REGISTRY_LOST within seconds.
    827,
    # A load that the next one overtook, whose version was deleted by then: VERSION_NOT_FOUND.
    2046,
)
"""Seeds are of the simulation as it is: each fault has a test of its component too."""


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("seeds", [50, long(_SEEDS)])
def test_what_befalls_a_job_costs_it_nothing_but_time(seeds: int) -> None:
    before = series_of_jobs()
    outcomes = [simulate(seed) for seed in range(seeds)]
    wrong = [str(outcome) for outcome in outcomes if outcome.wrong]
    assert not wrong, "\n".join(wrong)
    assert sum(outcome.controllers for outcome in outcomes) > 2 * seeds
    # Crashes between a version's weights and its state, and between two states.
    assert sum(outcome.replays for outcome in outcomes) > seeds // 50
    # However a job's runs ended, and whoever led then: nothing of it is shown any more.
    assert series_of_jobs() <= before


@pytest.mark.parametrize("shape", [Shape(groups=3, at_once=3), Shape(staleness=1, ready=True)])
def test_an_outage_of_the_database_within_the_lease_cuts_no_group(shape: Shape) -> None:
    """A lone controller leads on for as long again as its lease lasts, and its groups go on."""
    work = undisturbed(shape.left_alone).work
    for point in range(work // 8, work, work // 8):
        world = World(shape, point, disturbed=False)

        def lose(world: World = world) -> None:
            world.network.lose(network.DATABASE)
            world.loop.world(12.0, lambda: world.network.restore(network.DATABASE))

        world.loop.at(point, lose)
        with clocks_of(world, point):
            live(world)
            assert not faults_of(world)
        assert world.job.state == pb.JOB_STATE_SUCCEEDED
        assert set(world.rollout.asked.values()) == {1}, point


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


def test_an_environment_of_equal_rewards_is_told_of_once() -> None:
    record = undisturbed(Shape(steps=9, groups=2, alike=True))
    ((kind, message, step),) = record.coached
    assert (kind, step) == (pb.EVENT_TYPE_WARNING, 5)
    assert "in 100 % of the groups of the last 5 steps" in message
    assert "raise rollout.group_size (2) or rollout.sampling.temperature (1)" in message
    assert message.endswith("(NO_VARIANCE)")


def test_a_seed_is_the_same_each_time() -> None:
    for seed in range(5):
        first, second = simulate(seed), simulate(seed)
        assert (first.trace, first.work) == (second.trace, second.work)


class CommitsTwice(MemoryLedger):
    """Commits a step once more when the answer was lost, whether it was committed or not."""

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        try:
            return await super().commit_step(job_id, step, coach_events)
        except DatabaseUnavailableError:
            row = self._database.jobs[job_id]
            row.completed_steps = step.number - 1
            return await super().commit_step(job_id, step, coach_events)


class Unfenced(MemoryLedger):
    """Writes under a lease that is another's by now."""

    async def _write(self, work: Callable[[], Any]) -> Any:
        return await self._database.transact(work)


class LosesAnswers(MemoryLedger):
    """Commits a step of which something is said, and its answer is lost."""

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        committed = await super().commit_step(job_id, step, coach_events)
        if committed and coach_events:
            raise DatabaseUnavailableError("the answer is lost")
        return committed


class TellsLater(MemoryLedger):
    """Would write what is said of a step in a transaction of its own, which comes too late."""

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        if not await super().commit_step(job_id, step):
            return False
        if coach_events:
            raise DatabaseUnavailableError("the answer is lost")
        return True


class ForgetsTakes(MemoryLedger):
    """Gives a step its groups, and does not write which."""

    async def take_groups(
        self, job_id: str, groups: Sequence[trajectory_pb2.Group], drawn: Drawn, *, last: bool
    ) -> None:
        before = await self.drawn(job_id)
        await super().take_groups(job_id, groups, drawn, last=last)
        row = self._database.jobs[job_id]
        row.drawn = before
        for group in groups:
            row.groups[group.id].step = WAITING_ROOM
            row.groups[group.id].position = int(group.id.rpartition("/d")[2])


class Forgets(RolloutGroups):
    """Takes what a step has already for all that it is to have."""

    async def count(self, step: int) -> int:
        stored = await self._sources[0][0].reporter._ledger.stored_groups(self._job_id, step)
        return len(stored) or await super().count(step)


class WorldOfDoubleCommits(World):
    ledger = CommitsTwice
    befalls = (lose_answers,)


class WorldWithoutFence(World):
    ledger = Unfenced
    befalls = (freeze,)


class WorldThatForgetsTakes(World):
    ledger = ForgetsTakes
    befalls = (die,)


def lose_trainer(world: World, draw: random.Random) -> None:
    """The trainer dies with all that it held, and comes back without."""
    world.network.lose("trainer")
    world.trainer.forget()
    world.may_hold = True
    world.loop.world(1.0, lambda: world.network.restore("trainer"))


class WorldWithoutTrainer(World):
    befalls = (lose_trainer,)


class WorldOfLostAnswers(World):
    ledger = LosesAnswers
    befalls = (lose_answers,)


class WorldThatTellsLater(World):
    ledger = TellsLater
    befalls = (lose_answers,)


def first_found(world: type[World], first: int, of: str = "") -> str:
    """What a seed says that finds something wrong, `of` what is searched for.

    Seed `first` is known to, of the simulation as it is: of another all are tried.
    """
    for seed in (*range(first, _SEEDS), *range(first)):
        wrong = "\n".join(simulate(seed, world).wrong)
        if wrong and of in wrong:
            return wrong
    raise AssertionError(f"{_SEEDS} seeds find nothing")


def test_a_double_commit_is_found() -> None:
    assert "committed" in first_found(WorldOfDoubleCommits, 12)


def test_what_is_said_of_a_step_whose_commit_is_not_heard_of_is_said_once() -> None:
    # Their jobs are told that nothing varies.
    seeds = range(136, 144)
    assert any(undisturbed(shape_of(seed).left_alone).coached for seed in seeds)
    assert not any(simulate(seed, WorldOfLostAnswers).wrong for seed in seeds)


def test_what_is_said_apart_from_its_step_is_found() -> None:
    assert "coached" in first_found(WorldThatTellsLater, 136)


def test_a_skipped_fence_is_found() -> None:
    assert "the database has" in first_found(WorldWithoutFence, 12)


def test_a_lost_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "RolloutGroups", Forgets)
    assert first_found(World, 105, of="g0")


def test_a_step_that_is_not_written_before_it_trains_is_found() -> None:
    assert "the database has" in first_found(WorldThatForgetsTakes, 16)


def test_a_version_without_state_that_is_not_made_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forgets(self: Resume) -> None:
        self._target = None

    monkeypatch.setattr(Resume, "catch_up", forgets)
    assert first_found(World, 12)


def test_groups_that_go_before_their_state_is_stored_are_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the rule was while every version had state."""

    def by_versions(spec: spec_pb2.JobSpec, completed: int) -> int:
        kept = spec.retention.keep_last
        return max(0, completed - kept) if kept > 1 else 0

    shape = Shape(steps=11, keeps=2, interval=5, cramped=True)
    assert not any(simulate(seed, WorldWithoutTrainer, shape).wrong for seed in range(8))
    monkeypatch.setattr(trajectories, "last_spare_step", by_versions)
    outcomes = [simulate(seed, WorldWithoutTrainer, shape) for seed in range(8)]
    assert any("STATE_LOST" in str(outcome) for outcome in outcomes)


def test_a_version_whose_state_is_on_its_way_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than a step.
    monkeypatch.setattr(network, "_BEHIND", (6.0,))
    shape = Shape(steps=7, keeps=1, interval=3)
    undisturbed(shape)
    undisturbed.cache_clear()
    monkeypatch.setattr(StepRunner, "awaited", None)
    with pytest.raises(AssertionError, match="deleted before"):
        undisturbed(shape)


def test_what_is_trained_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReadyFirst, "_drop_late", lambda self: None)
    with pytest.raises(AssertionError, match="versions old"):
        undisturbed(Shape(steps=9, groups=2, staleness=1, ready=True, slow=0.4, pure=False))


def test_a_group_that_is_not_replaced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector_module, "stand_ins", lambda *_: [])
    with pytest.raises(AssertionError, match="groups of which"):
        undisturbed(Shape(steps=7, dynamic=True, flat=0.6))


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
