"""What becomes of groups that are too old, or of no use."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from podium.core.contract import complete_rollout
from podium.core.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    PodiumError,
)
from podium.core.skip_reasons import (
    GROUP_REFUSED,
    JUDGE_BUDGET,
    JUDGE_ERROR,
    JUDGE_FAILED,
    JUDGE_MISCONFIGURED,
)
from podium.judge.v1.judge_service_pb2 import ScoreGroupRequest, ScoreGroupResponse
from podium.types.v1 import spec_pb2
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JUDGED, GroupKey
from podium_controller.training import useless as useless_module
from podium_controller.training.collector import Collector
from podium_controller.training.group_sources import RolloutGroups
from podium_controller.training.judging import Judging
from podium_controller.training.mixture import Mixture
from podium_controller.training.scenario_order import ScenarioOrder
from prometheus_client import REGISTRY
from support.fakes.bench import JOB, Bench

ROLLOUT = spec_pb2.RolloutSpec(
    groups_per_step=2, group_size=2, max_concurrent_groups=2, max_staleness=1
)


SINGLE = [spec_pb2.WeightedEnvironment(weight=1)]


async def collecting(rollout: spec_pb2.RolloutSpec = ROLLOUT) -> tuple[Bench, Collector]:
    """A collector of a job whose version 0 is served."""
    bench = Bench(rollout=rollout)
    await bench.optimizer.open(None)
    await bench.serving.serve(0)
    scenarios = await bench.rollout.scenarios(bench.spec.environment, "train")
    order = ScenarioOrder(scenarios, 7)
    judging = Judging(
        bench.judge,
        bench.spec.reward,
        bench.recovery,
        bench.ledger,
        bench.spending,
    )
    collector = Collector(
        JOB,
        bench.spec,
        RolloutGroups(
            JOB,
            rollout,
            [(bench.source, order, ScenarioOrder(scenarios, "7/stand-ins"))],
            Mixture(SINGLE, 7, 2),
        ),
        judging,
        bench.ledger,
        bench.reporter,
        lambda step: trace.INVALID_SPAN,
    )
    return bench, collector


async def test_what_is_stored_is_not_collected_again() -> None:
    bench, collector = await collecting()
    batch = await collector.collect(1)
    assert [group.id for group in batch.groups] == [f"{JOB}/s1/g0", f"{JOB}/s1/g1"]
    assert all(t.HasField("reward") for group in batch.groups for t in group.trajectories)
    stored = await bench.ledger.stored_groups(JOB, 1)
    assert {each.status for each in stored.values()} == {JUDGED}
    again = await collector.collect(1)
    assert again.groups == batch.groups
    assert set(bench.rollout.collected.values()) == {1}
    assert set(bench.judge.judged.values()) == {1}


def stale_groups() -> float:
    labels = {"outcome": "stale"}
    return REGISTRY.get_sample_value("podium_controller_groups_total", labels) or 0


async def test_a_group_of_weights_that_are_too_old_is_collected_again() -> None:
    bench, collector = await collecting()
    await collector.collect(1)
    for row in bench.database.jobs[JOB].groups.values():
        row.step = 3
    bench.inference.version = 2
    before = stale_groups()
    batch = await collector.collect(3)
    assert (batch.staleness, batch.stale) == (0, 2)
    assert stale_groups() == before + 2
    told = [event.message for event in bench.events if "versions ago" in event.message]
    assert len(told) == 2


def ask_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(useless_module.asyncio, "sleep", at_once)


async def test_a_group_that_judges_fail_is_judged_again_and_not_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, collector = await collecting()
    ask_again_at_once(monkeypatch)
    score = bench.judge.score

    async def fail_at_first(request: ScoreGroupRequest) -> ScoreGroupResponse:
        answer = await score(request)
        if bench.judge.judged[request.group.id] == 1:
            for trajectory in answer.group.trajectories:
                trajectory.ClearField("reward")
            answer.group.skip_reason = JUDGE_FAILED
        return answer

    bench.judge.score = fail_at_first  # type: ignore[method-assign]
    batch = await collector.collect(1)
    assert all(t.HasField("reward") for group in batch.groups for t in group.trajectories)
    assert set(bench.judge.judged.values()) == {2}
    assert set(bench.rollout.collected.values()) == {1}


async def test_a_pool_that_stays_behind_ends_the_job() -> None:
    _, collector = await collecting()
    with pytest.raises(JobFailedError) as raised:
        await collector.collect(5)
    assert raised.value.reason == "STALENESS_EXCEEDED"


async def test_a_step_of_nothing_but_failures_has_three_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, collector = await collecting()
    ask_again_at_once(monkeypatch)
    bench.rollout.fails = lambda group_id: bench.rollout.collected[group_id] < 3
    assert (await collector.collect(1)).groups
    assert set(bench.rollout.collected.values()) == {3}
    bench.rollout.fails = lambda group_id: True
    with pytest.raises(JobFailedError) as raised:
        await collector.collect(2)
    assert raised.value.reason == "ENVIRONMENT_FAILING"
    assert "the inbox is missing" in raised.value.message


async def test_a_scenario_that_is_refused_costs_its_group_and_no_other() -> None:
    bench, collector = await collecting()
    refused = "train-0"
    bench.rollout.refused = lambda scenario_id: scenario_id == refused
    reasons: dict[str, str] = {}
    for step in range(1, 5):
        bench.inference.version = step - 1
        for group in (await collector.collect(step)).groups:
            reasons[group.scenario.id] = group.skip_reason
    assert reasons == {f"train-{i}": "" for i in range(8)} | {refused: GROUP_REFUSED}
    # Nobody judges it, and it was asked for once.
    assert len([e for e in bench.events if "was refused" in e.message]) == 1
    assert not any(id_ for id_ in bench.judge.judged if bench.rollout.collected[id_] == 0)


async def test_in_place_of_a_step_that_is_refused_others_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, collector = await collecting()

    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(useless_module.asyncio, "sleep", at_once)
    drawn = [group.scenario.id for group in (await collector.collect(1)).groups]
    bench, collector = await collecting()
    bench.rollout.refused = lambda scenario_id: scenario_id in drawn
    batch = await collector.collect(1)
    assert not {group.scenario.id for group in batch.groups} & set(drawn)
    assert {group.skip_reason for group in batch.groups} == {""}
    bench.rollout.refused = lambda scenario_id: True
    bench.inference.version = 1
    with pytest.raises(JobFailedError) as raised:
        await collector.collect(2)
    assert raised.value.reason == "GROUPS_REFUSED"
    assert "INVALID_ARGUMENT: scenario.data.inbox: got none" in raised.value.message


@pytest.mark.parametrize(
    ("error", "skip_reason", "reason"),
    [
        (
            FailedPreconditionError("HTTP 401: check its key", reason="JUDGE_MISCONFIGURED"),
            JUDGE_MISCONFIGURED,
            "JUDGE_MISCONFIGURED",
        ),
        (InvalidArgumentError("too deep"), JUDGE_ERROR, "JUDGE_FAILING"),
        (InternalError("a defect"), JUDGE_ERROR, "JUDGE_FAILING"),
    ],
)
async def test_a_judge_that_refuses_a_group_costs_that_group_and_of_all_the_job(
    error: PodiumError, skip_reason: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, collector = await collecting()

    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(useless_module.asyncio, "sleep", at_once)

    def refuse() -> None:
        raise error

    bench.before("score", refuse)
    first = await collector.collect(1)
    assert sorted(group.skip_reason for group in first.groups) == ["", skip_reason]
    assert any(
        f"is skipped. The judge says: not scored: {error.message}" in e.message
        for e in bench.events
    )
    # A step without one score is judged anew, what was collected stays.
    bench.inference.version = 1
    bench.before("score", refuse, refuse)
    assert {group.skip_reason for group in (await collector.collect(2)).groups} == {""}
    bench.inference.version = 2
    bench.before("score", *[refuse] * 6)
    with pytest.raises(JobFailedError) as raised:
        await collector.collect(3)
    assert raised.value.reason == reason
    assert error.message in raised.value.message
    assert set(bench.rollout.collected.values()) == {1}


DYNAMIC = complete_rollout(
    spec_pb2.RolloutSpec(
        groups_per_step=2, group_size=2, max_concurrent_groups=2, dynamic_sampling=True
    )
)


async def test_groups_that_cannot_teach_are_replaced_by_others_that_follow() -> None:
    bench, collector = await collecting(DYNAMIC)
    flat = {"g0", "g2"}
    bench.rollout.is_flat = lambda group_id: group_id.rpartition("/")[2] in flat
    batch = await collector.collect(1)
    assert [group.id for group in batch.groups] == [f"{JOB}/s1/g{i}" for i in range(4)]
    assert batch.counts == {"groups_stale": 0.0, "groups_replaced": 2.0}
    scenarios = [group.scenario.id for group in batch.groups]
    # A controller that finds half of it asks for the same.
    for position in (1, 3):
        await bench.ledger.drop_group(GroupKey(JOB, 1, position))
    again = await collector.collect(1)
    assert [group.scenario.id for group in again.groups] == scenarios
    rewards = [[each.reward for each in group.trajectories] for group in batch.groups]
    assert [[each.reward for each in group.trajectories] for group in again.groups] == rewards
    # The next step has the scenarios that it has without.
    flat.clear()
    _, without = await collecting(ROLLOUT)
    bench.inference.version = 1
    following = await collector.collect(2)
    expected = await without.collect(2)
    found = [group.scenario.id for group in following.groups]
    assert found == [group.scenario.id for group in expected.groups]


async def test_a_step_attempts_no_more_than_it_may_and_says_so() -> None:
    bench, collector = await collecting(DYNAMIC)
    bench.rollout.is_flat = lambda group_id: not group_id.endswith("g5")
    first = await collector.collect(1)
    assert len(first.groups) == 6
    (told,) = [each.message for each in bench.events if "max_attempted_groups" in each.message]
    assert "has attempted 6 groups" in told
    assert "1 of the 2" in told


async def test_where_judges_may_spend_no_more_nothing_is_replaced() -> None:
    bench, collector = await collecting(DYNAMIC)
    score = bench.judge.score

    async def refuse(request: ScoreGroupRequest) -> ScoreGroupResponse:
        answer = await score(request)
        if answer.group.id.endswith("g1"):
            answer.group.skip_reason = JUDGE_BUDGET
        return answer

    bench.judge.score = refuse  # type: ignore[method-assign]
    assert len((await collector.collect(1)).groups) == 2
