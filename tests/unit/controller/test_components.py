"""The smaller components of the training loop, each over peers and a ledger in memory."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    DataLossError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PodiumError,
    Violation,
)
from podium.core.skip_reasons import GROUP_REFUSED
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from podium_controller.api import submissions
from podium_controller.domain.errors import JobIdleError
from podium_controller.domain.ports import GroupKey
from podium_controller.domain.uncollected import was_broken_on
from podium_controller.store.jobs import NewJob
from podium_controller.training.aliases import BEST
from podium_controller.training.group_sources import ClientGroups, RolloutGroups
from podium_controller.training.mixture import Mixture
from podium_controller.training.prefetch import Prefetch
from podium_controller.training.scenario_order import ScenarioOrder
from support.fakes.bench import JOB, Bench

PINNED = policy_pb2.PolicyRef(job=JOB, version=0)


async def published(bench: Bench, *steps: int) -> None:
    """Versions 0 and those of the steps."""
    await bench.optimizer.open(None)
    for step in steps:
        await bench.optimizer.step(step, [trajectory_pb2.Group(id=f"g{step}")], {}, {})


async def collected(bench: Bench, attempts: int = 2) -> trajectory_pb2.Group:
    """A group of version 0."""
    return await bench.source.collect(
        GroupKey(JOB, 1, 0),
        f"{JOB}/s1/g0",
        trajectory_pb2.Scenario(id="train-0"),
        attempts,
        PINNED,
        policy_pb2.SamplingParams(),
    )


async def test_serving_takes_a_pool_from_a_job_that_does_not_run() -> None:
    bench = Bench()
    await published(bench)
    await bench.jobs.create(NewJob("other", bench.spec, "", "", ""))
    bench.inference.job, bench.inference.version = "other", 3
    await bench.serving.serve(0)
    assert (bench.inference.job, bench.inference.version) == (JOB, 0)
    assert not await bench.serving.reload()


async def test_serving_leaves_a_pool_to_a_job_that_runs() -> None:
    bench = Bench()
    await published(bench)
    await bench.jobs.create(NewJob("other", bench.spec, "", "", ""))
    await bench.ledger.start("other", "default")
    bench.inference.job, bench.inference.version = "other", 3
    with pytest.raises(FailedPreconditionError, match="serves 'other'"):
        await bench.serving.serve(0)
    assert bench.inference.job == "other"


async def test_the_best_version_is_the_older_one_of_equals() -> None:
    bench = Bench(evaluation=spec_pb2.EvaluationSpec(best_metric="success"))
    await published(bench, 1, 2)
    for version, value, is_best in ((0, 0.5, True), (1, 0.5, False), (2, 0.7, True)):
        await bench.aliases.record(version, {"success": value})
        assert await bench.aliases.promote(version, value) == is_best
    assert await bench.aliases.promote(2, 0.7)
    assert bench.registry.aliases[JOB, BEST] == 2


async def test_an_alias_that_somebody_moves_is_compared_again() -> None:
    bench = Bench(evaluation=spec_pb2.EvaluationSpec(best_metric="success"))
    await published(bench, 1)
    await bench.aliases.record(1, {"success": 0.9})
    bench.before("set_alias", lambda: bench.registry.aliases.update({(JOB, BEST): 1}))
    assert not await bench.aliases.promote(0, 0.5)
    assert bench.registry.aliases[JOB, BEST] == 1


async def test_a_group_s_pool_is_brought_back_to_its_version() -> None:
    bench = Bench()
    await published(bench, 1)
    await bench.serving.serve(0)
    bench.inference.version = 1
    group = await collected(bench)
    assert bench.inference.version == 0
    assert [t.id for t in group.trajectories] == [f"{JOB}/s1/g0/t0", f"{JOB}/s1/g0/t1"]


async def test_what_breaks_the_rollout_service_costs_its_group_alone() -> None:
    bench = Bench()
    await published(bench)
    await bench.serving.serve(0)

    def break_on_it() -> None:
        raise InternalError("a defect")

    bench.before("collect", break_on_it)
    group = await collected(bench)
    assert was_broken_on(group)
    assert bench.pool.fair_share.running(JOB) == 0
    assert any("could not be collected" in event.message for event in bench.events)


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgumentError(violations=[Violation("scenario.data.inbox", "got none")]),
        NotFoundError("the environment has no scenario s0"),
        FailedPreconditionError("its data set cannot be read", reason="DATASET_UNREACHABLE"),
        PermissionDeniedError("not for you", metadata={"peer": "environment 'mine' at host:1"}),
    ],
)
async def test_what_is_refused_of_a_group_costs_that_group_with_its_reason(
    error: PodiumError,
) -> None:
    bench = Bench()
    await published(bench)
    await bench.serving.serve(0)

    def refuse() -> None:
        raise error

    bench.before("collect", refuse)
    group = await collected(bench)
    assert group.skip_reason == GROUP_REFUSED
    assert {t.failure.type for t in group.trajectories} == {error.reason}
    assert {t.failure.message for t in group.trajectories} == {error.message}
    (told,) = [event.message for event in bench.events if group.id in event.message]
    assert "was refused" in told
    assert error.message in told


async def test_damage_is_no_groups_and_ends_what_it_is_of() -> None:
    bench = Bench()
    await published(bench)
    await bench.serving.serve(0)

    def damaged() -> None:
        raise bench.damage(JOB, 0)

    bench.before("collect", damaged)
    with pytest.raises(DataLossError):
        await collected(bench)


async def test_an_origin_draws_the_same_groups_again() -> None:
    rollout = spec_pb2.RolloutSpec(groups_per_step=2, group_size=2)
    bench = Bench(rollout=rollout)
    await published(bench)
    await bench.serving.serve(0)
    order = ScenarioOrder([trajectory_pb2.Scenario(id=f"s{i}") for i in range(4)], 7)
    mixture = Mixture([spec_pb2.WeightedEnvironment(weight=1)], 7, 2)
    group_source = RolloutGroups(JOB, rollout, [(bench.source, order, order)], mixture)
    assert await group_source.count(1) == 2
    first = await group_source.sample(GroupKey(JOB, 1, 1), 1)
    second = await group_source.sample(GroupKey(JOB, 1, 1), 1)
    assert (first.id, first.scenario) == (second.id, second.scenario)


async def test_a_silent_client_s_job_is_idle() -> None:
    client = spec_pb2.ClientSpec(idle_seconds=0)
    bench = Bench(client=client)
    group_source = ClientGroups(JOB, client, bench.ledger)
    with pytest.raises(JobIdleError):
        await group_source.arrival(1)
    bench.database.jobs[JOB].finishing = True
    assert not await group_source.arrival(1)
    with pytest.raises(InternalError):
        await group_source.sample(GroupKey(JOB, 1, 0), 0)


class Collects:
    """Stands for the collector where only the order of steps is looked at."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.foreground_step = 0

    async def collect(self, step: int) -> int:
        self.begun.append(step)
        return step


@pytest.mark.parametrize(
    ("staleness", "begun"), [(0, [[1], [1, 2], [1, 2, 3]]), (1, [[1, 2], [1, 2, 3], [1, 2, 3]])]
)
async def test_collection_runs_ahead_as_far_as_staleness_allows(
    staleness: int, begun: list[list[int]]
) -> None:
    collector = Collects()
    feed = Prefetch(collector, 3, staleness)  # type: ignore[arg-type]
    for version, expected in enumerate(begun):
        feed.advance(version)
        await asyncio.sleep(0)
        assert collector.begun == expected
        assert await feed.take(version + 1) == version + 1
    await feed.close()


def submitted(**fields: object) -> trajectory_pb2.Group:
    """What a client sends."""
    group = trajectory_pb2.Group(scenario=trajectory_pb2.Scenario(id="mine"))
    group.trajectories.add(reward=5.0, **fields)
    return group


def test_a_batch_becomes_the_step_s_groups_without_rewards() -> None:
    (group,) = submissions.groups_for(JOB, spec_pb2.JobSpec(), 2, [submitted()])
    assert group.id == f"{JOB}/s2/g0"
    assert group.trajectories[0].id == f"{JOB}/s2/g0/t0"
    assert not group.trajectories[0].HasField("reward")


def test_a_batch_of_older_weights_is_refused() -> None:
    group = submitted()
    span = group.trajectories[0].histories.add().tokens.spans.add(policy=JOB, weights_version=0)
    with pytest.raises(FailedPreconditionError) as raised:
        submissions.groups_for(JOB, spec_pb2.JobSpec(), 2, [group])
    assert raised.value.reason == "STALE_BATCH"
    span.weights_version = 1
    assert submissions.groups_for(JOB, spec_pb2.JobSpec(), 2, [group])


def test_all_that_is_wrong_with_a_batch_is_told_at_once() -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        submissions.check([trajectory_pb2.Group(), submitted(environment_reward=float("nan"))])
    assert [violation.field for violation in raised.value.violations] == [
        "groups[0].scenario.id",
        "groups[0].trajectories",
        "groups[1].trajectories[0].environment_reward",
    ]
