"""Environments that are away, full, or lost under a group: what that costs a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from opentelemetry import trace
from podium.core.errors import ResourceExhaustedError
from podium.core.skip_reasons import (
    ENVIRONMENT_UNAVAILABLE,
    EPISODES_LOST,
    EPISODES_WERE_LOST,
    NO_ENVIRONMENT_ANSWERS,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import GroupKey
from podium_controller.training.aliases import BEST
from podium_controller.training.collector import Collector
from podium_controller.training.concurrency import Concurrency
from podium_controller.training.draws import Draws
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.evaluator import Evaluator
from podium_controller.training.group_sources import DrawnGroups, EpisodeScenarios, RolloutGroups
from podium_controller.training.judging import Judging
from podium_controller.training.mixture import Mixture
from podium_controller.training.ready_first import ReadyFirst
from podium_controller.training.recovery import Recovery
from podium_controller.training.scenario_order import ScenarioOrder
from support.fakes.bench import JOB, Bench

NAMES = ("chess", "go")


class World(Bench):
    """A job of two environments, whose losses it waits for no longer than a moment."""

    def __init__(self, groups: int = 2, **fields: int) -> None:
        rollout = spec_pb2.RolloutSpec(
            groups_per_step=groups, group_size=2, max_concurrent_groups=4, **fields
        )
        evaluation = spec_pb2.EvaluationSpec(samples=1, best_metric="reward")
        super().__init__(rollout=rollout, evaluation=evaluation, training={"steps": 9})
        self.recovery = Recovery(self.reporter, self.control, 0.05)
        self.away: set[str] = set()
        self.rollout.loses = self.loses
        self.asked: Counter[str] = Counter()

    def loses(self, request: rollout_pb.CollectGroupRequest) -> str:
        """Why a group has no environment."""
        name = request.environment.name
        self.asked[request.group_id] += 1
        return NO_ENVIRONMENT_ANSWERS if name in self.away else ""

    async def begin(self) -> None:
        """Version 0 is served."""
        await self.optimizer.open(None)
        await self.serving.serve(0)

    def of(self, name: str) -> EpisodeSource:
        """Where the episodes of an environment come from."""
        environment = spec_pb2.EnvironmentSpec(name=name)
        return replace(self.source, recovery=self.recovery, environment=environment, name=name)

    async def one(self, source: EpisodeSource, number: int = 0) -> trajectory_pb2.Group:
        """A group of one environment."""
        return await source.collect(
            GroupKey(JOB, 1, number),
            f"{JOB}/s1/g{number}",
            trajectory_pb2.Scenario(id="train-0"),
            2,
            policy_pb2.PolicyRef(job=JOB, version=0),
            policy_pb2.SamplingParams(),
        )

    @property
    def mixture(self) -> Mixture:
        """As often the one as the other."""
        both = [spec_pb2.WeightedEnvironment(weight=1, from_step=1) for _ in NAMES]
        return Mixture(both, 7, self.spec.rollout.groups_per_step)

    @property
    def judging(self) -> Judging:
        """By the environment's own rewards."""
        return Judging(
            self.judge,
            self.spec.reward,
            self.recovery,
            self.ledger,
            self.spending,
        )

    async def sources(self) -> list[EpisodeScenarios]:
        """Of both."""
        scenarios = await self.rollout.scenarios(self.spec.environment, "train")
        return [
            (self.of(name), ScenarioOrder(scenarios, 7), ScenarioOrder(scenarios, "again"))
            for name in NAMES
        ]

    async def collector(self) -> Collector:
        """Of steps whose groups follow from their number."""
        groups = RolloutGroups(JOB, self.spec.rollout, await self.sources(), self.mixture)
        return Collector(
            JOB,
            self.spec,
            groups,
            self.judging,
            self.ledger,
            self.reporter,
            lambda step: trace.INVALID_SPAN,
        )


def reasons(groups: list[trajectory_pb2.Group]) -> dict[str, set[str]]:
    """By environment, those with which groups are skipped."""
    found: dict[str, set[str]] = {}
    for group in groups:
        found.setdefault(group.trajectories[0].environment, set()).add(group.skip_reason)
    return found


async def test_an_environment_that_stays_away_costs_its_groups_until_it_is_back() -> None:
    world = World()
    await world.begin()
    world.away = {"chess"}
    chess, go = world.of("chess"), world.of("go")
    group = await world.one(chess)
    assert group.skip_reason == ENVIRONMENT_UNAVAILABLE
    assert {t.failure.type for t in group.trajectories} == {NO_ENVIRONMENT_ANSWERS}
    assert (chess.is_lost, go.is_lost) == (True, False)
    assert not (await world.one(go, 1)).skip_reason
    world.away = set()
    assert not (await world.one(chess, 2)).skip_reason
    assert not chess.is_lost
    told = [each.message for each in world.events]
    assert sum("environment is lost" in text for text in told) == 1
    assert sum("environment is back" in text for text in told) == 1
    assert sum(f"group {JOB}/s1/g0 is skipped" in text for text in told) == 1


@pytest.mark.parametrize("reason", ["NO_SESSION", "QUEUED_TOO_LONG"])
async def test_an_environment_without_room_costs_its_groups(reason: str) -> None:
    world = World()
    await world.begin()

    def full() -> None:
        raise ResourceExhaustedError("had no free session within 1 s", reason=reason)

    world.before("collect", *[full] * 1000)
    assert (await world.one(world.of("chess"))).skip_reason == ENVIRONMENT_UNAVAILABLE


async def test_a_rollout_service_without_room_is_no_environment_s() -> None:
    world = World()
    await world.begin()

    def full() -> None:
        raise ResourceExhaustedError("8 groups are being collected", reason="TOO_MANY_GROUPS")

    world.before("collect", *[full] * 1000)
    with pytest.raises(JobFailedError) as caught:
        await world.one(world.of("chess"))
    assert caught.value.reason == "TOO_MANY_GROUPS"


@pytest.mark.parametrize("losses", [2, 3])
async def test_a_group_that_loses_its_environment_each_time_is_played_three_times(
    losses: int,
) -> None:
    world = World()
    await world.begin()

    def counted(request: rollout_pb.CollectGroupRequest) -> str:
        world.loses(request)
        return EPISODES_WERE_LOST if world.asked[request.group_id] <= losses else ""

    world.rollout.loses = counted
    group = await world.one(world.of("chess"))
    assert group.skip_reason == (EPISODES_LOST if losses == 3 else "")
    assert world.asked[group.id] == 3
    assert not world.of("chess").is_lost


async def test_a_step_goes_on_with_the_groups_of_the_other_environment() -> None:
    world = World()
    await world.begin()
    world.away = {"chess"}
    collector = await world.collector()
    found: list[trajectory_pb2.Group] = []
    for step in range(1, 4):
        world.inference.version = step - 1
        found += (await collector.collect(step)).groups
    assert reasons(found) == {"chess": {ENVIRONMENT_UNAVAILABLE}, "go": {""}}
    assert not [each for each in world.judge.judged if not world.rollout.collected[each]]


async def test_a_step_of_the_lost_environment_alone_has_groups_of_the_other() -> None:
    world = World(groups=1)
    await world.begin()
    world.away = {"chess"}
    collector = await world.collector()
    found: list[trajectory_pb2.Group] = []
    for step in range(1, 6):
        world.inference.version = step - 1
        found += (await collector.collect(step)).groups
    assert reasons(found) == {"go": {""}}
    world.away = set(NAMES)
    world.inference.version = 5
    with pytest.raises(JobFailedError) as caught:
        await collector.collect(6)
    assert caught.value.reason == NO_ENVIRONMENT_ANSWERS
    assert "no group of step 6 could be collected" in caught.value.message


@pytest.mark.parametrize("away", [{"chess"}, set(NAMES)])
async def test_steps_that_take_what_is_ready_go_on_with_the_other(away: set[str]) -> None:
    world = World(max_staleness=1)
    await world.begin()
    world.away = away
    batches = ReadyFirst(
        JOB,
        world.spec,
        DrawnGroups(JOB, world.spec.rollout, await world.sources(), world.mixture),
        world.judging,
        world.ledger,
        world.reporter,
        lambda step: trace.INVALID_SPAN,
        Draws(world.mixture, 2, 0),
        0,
        Concurrency(JOB, world.spec.rollout, world.pool, world.reporter),
    )
    await batches.open()
    batches.advance(0)
    try:
        if away == set(NAMES):
            with pytest.raises(JobFailedError) as caught:
                await batches.take(1)
            assert caught.value.reason == NO_ENVIRONMENT_ANSWERS
            return
        found: list[trajectory_pb2.Group] = []
        for step in range(1, 5):
            batch = await batches.take(step)
            found += batch.groups
            record = pb.Step(number=step, group_ids=[group.id for group in batch.groups])
            await world.ledger.commit_step(JOB, record)
            world.inference.version = step
            batches.advance(step)
        assert reasons(found)["go"] == {""}
        assert reasons(found).get("chess", {ENVIRONMENT_UNAVAILABLE}) == {ENVIRONMENT_UNAVAILABLE}
    finally:
        await batches.close()


async def test_a_version_is_measured_where_there_are_environments_and_is_not_the_best() -> None:
    world = World()
    await world.begin()
    tasks = [(world.of(name), trajectory_pb2.Scenario(id=name)) for name in NAMES]
    evaluator = Evaluator(JOB, world.spec, world.ledger, world.aliases, world.reporter, tasks)
    world.away = {"chess"}
    await evaluator.evaluate(0)
    (found,), _ = await world.jobs.evaluations(JOB, None, 100)
    assert found.episodes == 1
    assert (JOB, BEST) not in world.registry.aliases
    assert any("1 scenarios of the evaluation" in each.message for each in world.events)
    await world.optimizer.step(1, [trajectory_pb2.Group(id="g1")], {}, {})
    await world.serving.serve(1)
    world.away = set(NAMES)
    with pytest.raises(JobFailedError) as caught:
        await evaluator.evaluate(1)
    assert caught.value.reason == NO_ENVIRONMENT_ANSWERS
