"""Scenario order, statistics, staleness, ids, tokens: the controller's pure functions."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.api import paging
from podium_controller.domain.identifiers import evaluation_group, new_job_id, training_group
from podium_controller.domain.staleness import staleness
from podium_controller.domain.step_metrics import (
    STEP_METRICS,
    evaluation_metrics,
    seconds_per_step,
    step_metrics,
)
from podium_controller.domain.trajectory_page import TrajectoryPage
from podium_controller.store.rows import job_message
from podium_controller.store.tables import jobs
from podium_controller.training.evaluator import is_due
from podium_controller.training.judging import failure_text, unusable
from podium_controller.training.scenario_order import ScenarioOrder
from sqlalchemy import Integer

SCENARIOS = [trajectory_pb2.Scenario(id=f"s{i}") for i in range(7)]


def draws(order: ScenarioOrder, steps: range, per_step: int) -> list[str]:
    return [order.at((step - 1) * per_step + i).id for step in steps for i in range(per_step)]


@given(seed=st.integers(0, 2**62), per_step=st.integers(1, 9))
def test_every_epoch_meets_every_scenario_once(seed: int, per_step: int) -> None:
    met = draws(ScenarioOrder(SCENARIOS, seed), range(1, 22), per_step)
    for start in range(0, len(met) - 7, 7):
        assert sorted(met[start : start + 7]) == [s.id for s in SCENARIOS]


@given(seed=st.integers(0, 2**62), step=st.integers(1, 50), index=st.integers(0, 3))
def test_a_draw_depends_on_nothing_but_seed_step_and_index(
    seed: int, step: int, index: int
) -> None:
    whole = ScenarioOrder(SCENARIOS, seed)
    met = draws(whole, range(1, step + 1), 4)
    resumed = ScenarioOrder(list(reversed(SCENARIOS)), seed)
    assert resumed.at((step - 1) * 4 + index).id == met[(step - 1) * 4 + index]


def test_epochs_and_seeds_differ_in_order() -> None:
    order = draws(ScenarioOrder(SCENARIOS, 1), range(1, 3), 7)
    assert order[:7] != order[7:]
    assert order[:7] != draws(ScenarioOrder(SCENARIOS, 2), range(1, 2), 7)


def attempt(version: int = 3, *, policy: str = "j", **fields: object) -> trajectory_pb2.Trajectory:
    result = trajectory_pb2.Trajectory(**{"id": "t", **fields})
    span = trajectory_pb2.SampledSpan(start=0, length=4, policy=policy, weights_version=version)
    result.histories.add().tokens.spans.append(span)
    return result


FAILED = {
    "stop_reason": trajectory_pb2.STOP_REASON_FAILED,
    "failure": trajectory_pb2.Failure(type="OSError", message="no disk"),
}


def test_metrics_of_a_step() -> None:
    group = trajectory_pb2.Group(
        trajectories=[
            attempt(reward=1.0, metrics={"success": 1.0}),
            attempt(reward=0.0, metrics={"success": 0.0}),
            attempt(**FAILED),
        ]
    )
    metrics = step_metrics([group], staleness=2)
    assert set(metrics) <= STEP_METRICS
    assert metrics["reward_mean"] == 0.5
    # The attempt that broke has not succeeded.
    assert metrics["success_mean"] == pytest.approx(1 / 3)
    assert metrics["tokens_sampled"] == 12
    assert metrics["trajectories_failed"] == metrics["trajectories_unscored"] == 1
    assert metrics["staleness_max"] == 2
    assert "history_splits" not in metrics
    group.trajectories[0].metrics["history_splits"] = 3
    group.trajectories[1].metrics["history_splits"] = 4
    metrics = step_metrics([group], staleness=2)
    assert set(metrics) <= STEP_METRICS
    assert metrics["history_splits"] == 7


def test_metrics_of_a_step_tell_of_its_judges() -> None:
    first = trajectory_pb2.JudgeOpinion(
        prompt_tokens=100, completion_tokens=10, cost=0.5, position_correlation=0.5
    )
    second = trajectory_pb2.JudgeOpinion(prompt_tokens=200, position_correlation=-0.1)
    groups = [
        trajectory_pb2.Group(
            trajectories=[attempt(reward=1.0)],
            judgements=[trajectory_pb2.Judgement(opinions=[first, second], agreement=0.75)],
        ),
        trajectory_pb2.Group(trajectories=[attempt(reward=1.0)]),
    ]
    metrics = step_metrics(groups, staleness=0)
    assert set(metrics) <= STEP_METRICS
    assert metrics["judge_tokens"] == 310
    assert metrics["judge_cost"] == 0.5
    assert metrics["judge_agreement_mean"] == 0.75
    assert metrics["judge_position_correlation_mean"] == pytest.approx(0.2)
    assert "judge_tokens" not in step_metrics(groups[1:], staleness=0)


def test_metrics_of_a_step_tell_how_attempts_ended_and_whether_judges_tell_them_apart() -> None:
    cut = attempt(reward=1.0, stop_reason=trajectory_pb2.STOP_REASON_TERMINATED)
    cut.histories[0].tokens.spans[0].finish_reason = trajectory_pb2.FINISH_REASON_LENGTH
    full = attempt(reward=1.0, stop_reason=trajectory_pb2.STOP_REASON_CONTEXT_LENGTH)
    # The last answer was cut too, as there was no room for more.
    full.histories[0].tokens.spans[0].finish_reason = trajectory_pb2.FINISH_REASON_LENGTH
    unfinished = [
        attempt(reward=0.0, stop_reason=trajectory_pb2.STOP_REASON_MAX_TURNS),
        attempt(reward=0.0, stop_reason=trajectory_pb2.STOP_REASON_TRUNCATED),
        attempt(reward=0.0, stop_reason=trajectory_pb2.STOP_REASON_DEADLINE),
    ]
    group = trajectory_pb2.Group(trajectories=[cut, full, *unfinished, attempt(**FAILED)])
    for scores in ((0.5, 0.5), (0.5, 0.5), (0.5, 0.6), (0.5,), ()):
        opinion = group.judgements.add().opinions.add()
        for score in scores:
            opinion.attempts.add(score=score)
    metrics = step_metrics([group], staleness=0, counts={"groups_stale": 2.0})
    assert set(metrics) <= STEP_METRICS
    assert metrics["trajectories_cut"] == 1
    assert metrics["trajectories_out_of_context"] == 1
    assert metrics["trajectories_unfinished"] == 3
    assert metrics["groups_stale"] == 2
    # One answer about a single attempt, and one of none, say nothing.
    assert metrics["judge_alike_fraction"] == pytest.approx(2 / 3)


def test_without_rewards_or_success_there_are_no_means() -> None:
    metrics = step_metrics([trajectory_pb2.Group(trajectories=[attempt(**FAILED)])], 0)
    assert "reward_mean" not in metrics
    assert "success_mean" not in metrics


def test_a_policy_is_measured_by_its_main_side() -> None:
    """The two sides of a game together always come out even."""
    group = trajectory_pb2.Group()
    for side, reward in (("", 1.0), ("opponent", 0.0)):
        group.trajectories.add(side=side, reward=reward, metrics={"success": reward})
    metrics = step_metrics([group], staleness=0)
    assert (metrics["reward_mean"], metrics["success_mean"]) == (1.0, 1.0)
    assert (metrics["trajectories"], metrics["trajectories_unscored"]) == (2, 0)


def test_evaluations_take_the_environments_reward_where_there_is_no_other() -> None:
    metrics = evaluation_metrics(
        [
            attempt(environment_reward=1.0, metrics={"turns": 2.0}),
            attempt(environment_reward=9.0, reward=0.0),
        ]
    )
    assert metrics == {"reward": 0.5, "turns": 2.0}


def test_t22_staleness_is_that_of_the_oldest_span() -> None:
    group = trajectory_pb2.Group(trajectories=[attempt(4), attempt(3)])
    assert staleness(group, "j", step=5) == 1
    assert staleness(group, "j", step=4) == 0
    assert staleness(trajectory_pb2.Group(), "j", step=9) == 0
    # A turn into which new weights came is as old as its first tokens.
    group.trajectories[0].histories[0].tokens.spans.add(
        start=4, length=1, policy="j", weights_version=2
    )
    assert staleness(group, "j", step=5) == 2
    # Another policy's tokens are never fresh.
    foreign = trajectory_pb2.Group(trajectories=[attempt(4, policy="other")])
    assert staleness(foreign, "j", step=5) == 5


def test_why_a_group_is_of_no_use() -> None:
    broken = trajectory_pb2.Group(trajectories=[attempt(**FAILED), attempt(**FAILED)])
    assert unusable(broken) == "all_failed"
    assert failure_text(broken) == "OSError: no disk"
    assert unusable(trajectory_pb2.Group(trajectories=[attempt(), attempt(**FAILED)])) == ""
    judged = trajectory_pb2.Group(trajectories=[attempt()], skip_reason="judge_failed")
    assert unusable(judged) == "judge_failed"
    assert failure_text(judged) == "judge_failed"
    judged.trajectories[0].explanation = "not scored: the judge's answer is no JSON"
    assert failure_text(judged) == "not scored: the judge's answer is no JSON"
    judged.skip_reason = "judge_budget"
    assert unusable(judged) == "judge_budget"
    judged.skip_reason = "zero_variance"
    assert unusable(judged) == ""


def test_ids() -> None:
    assert training_group("j", 3, 0) == "j/s3/g0"
    assert evaluation_group("j", 3, "greedy", 7) == "j/v3-greedy/g7"
    ids = {new_job_id("Email_Search!") for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch(r"email-search-[a-z0-9]{6}", each) for each in ids)
    for name in ("", "___", "x" * 300, "ÄÖ"):
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", new_job_id(name))
        assert len(new_job_id(name)) <= 63


def test_evaluations_are_due_first_last_and_every_so_often() -> None:
    spec = spec_pb2.JobSpec(training=spec_pb2.TrainingSpec(steps=7))
    assert not any(is_due(spec, version) for version in range(8))
    spec.evaluation.every_steps = 0
    assert [v for v in range(8) if is_due(spec, v)] == [0, 7]
    spec.evaluation.every_steps = 3
    assert [v for v in range(8) if is_due(spec, v)] == [0, 3, 6, 7]


def test_step_seconds_are_a_median_of_gaps() -> None:
    second = 10**9
    step = pb.Step(number=1)
    step.start_time.FromSeconds(3)
    step.commit_time.FromSeconds(5)
    assert seconds_per_step([5 * second], step) == 2
    # A night's pause in the middle does not count.
    assert seconds_per_step([0, 2 * second, 40_000 * second, 40_003 * second], step) == 3
    # Nor does how the job began, once it has had enough steps.
    early = [-1000 * second * (i + 1) for i in range(20)]
    assert seconds_per_step([*early, *(i * second for i in range(8))], step) == 1


def test_page_tokens_fit_only_their_own_call() -> None:
    request = pb.ListEventsRequest(job_id="j", page_size=2)
    token = paging.encode(request, [4])
    assert paging.decode(pb.ListEventsRequest(job_id="j", page_token=token), [int]) == [4]
    assert paging.decode(pb.ListEventsRequest(job_id="j"), [int]) is None
    foreign = [
        pb.ListEventsRequest(job_id="other", page_token=token),
        pb.ListStepsRequest(job_id="j", page_token=token),
        pb.ListEventsRequest(job_id="j", page_token=token[:-2]),
        pb.ListEventsRequest(job_id="j", page_token="é!"),
        pb.ListEventsRequest(job_id="j", page_token=paging.encode(request, ["4"])),
    ]
    for each in foreign:
        with pytest.raises(InvalidArgumentError) as raised:
            paging.decode(each, [int])
        assert [v.field for v in raised.value.violations] == ["page_token"]


def test_scenarios_are_spread_evenly_over_a_long_run() -> None:
    counts = Counter(draws(ScenarioOrder(SCENARIOS, 5), range(1, 8), 7))
    assert set(counts.values()) == {7}


def test_a_listed_trajectory_has_what_each_judge_said_about_it_alone() -> None:
    group = trajectory_pb2.Group(id="g")
    for name in ("t0", "t1"):
        group.trajectories.add(id=name, attempt=int(name[1]))
    ruler = group.judgements.add(part="ruler", agreement=0.5)
    both = ruler.opinions.add(model="m", address="http://m/v1", seed=7)
    for place, name in enumerate(("t1", "t0"), 1):
        both.attempts.add(trajectory_id=name, score=place / 4, place=place)
    ruler.opinions.add(model="gone", failure="no answer")
    # Of another side, or an attempt that it could not grade.
    group.judgements.add(part="rubric").opinions.add(attempts=[{"trajectory_id": "t1"}])

    page = TrajectoryPage("job", None, 10, 10**6)
    assert page.add((1, "", 0), group.SerializeToString())
    first, second = page.trajectories
    (judged,) = first.judgements
    assert (judged.part, judged.agreement) == ("ruler", 0.5)
    said, gone = judged.opinions
    assert (said.model, said.address, said.seed) == ("m", "http://m/v1", 7)
    assert [(each.trajectory_id, each.score, each.place) for each in said.attempts] == [
        ("t0", 0.5, 2)
    ]
    assert gone.failure == "no answer"
    assert [each.part for each in second.judgements] == ["ruler", "rubric"]


def test_a_listed_trajectory_says_of_what_it_is_whatever_was_stored() -> None:
    # A client's own: read from another job's file.
    stored = {"id": "other/s9/g0/t0", "job_id": "other", "step": 9, "evaluation_mode": "other"}
    group = trajectory_pb2.Group(id="g", trajectories=[stored])
    page = TrajectoryPage("job", None, 10, 10**6)
    for place in ((0, "", 0), (1, "", 0), (0, "greedy", 0), (2, "sampled", 0)):
        assert page.add(place, group.SerializeToString())
    told = page.trajectories
    assert {each.job_id for each in told} == {"job"}
    assert [each.evaluation_mode for each in told] == ["", "", "greedy", "sampled"]
    # Before a step takes it, it is of none; the first version that is evaluated is 0.
    assert [each.HasField("step") for each in told] == [False, True, True, True]
    assert [each.step for each in told[1:]] == [1, 0, 2]


@pytest.mark.parametrize(("steps", "told"), [(1_000_000, False), (10, True)])
def test_no_time_is_told_for_a_job_that_its_client_ends(steps: int, told: bool) -> None:
    spec = spec_pb2.JobSpec()
    spec.training.steps = steps
    last = pb.Step(number=3)
    last.commit_time.GetCurrentTime()
    values: dict[str, Any] = {
        column.name: 0 if isinstance(column.type, Integer) else "" for column in jobs.columns
    }
    values |= {"state": pb.JOB_STATE_RUNNING, "completed_steps": 3, "step_seconds": 2.0}
    values |= {"start_time": None, "end_time": None, "latest_step": last.SerializeToString()}
    for client, expected in ((False, True), (True, told)):
        if client:
            spec.client.SetInParent()
        row: Any = SimpleNamespace(**values | {"spec": spec.SerializeToString()})
        assert job_message(row).HasField("remaining_seconds") == expected
