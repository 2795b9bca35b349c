"""Evaluations with scorers: rewards of attempts alone, and wins against the first version's."""

from __future__ import annotations

import pytest
from podium.core.statistics import clustered_mean_interval, clustered_share_interval
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.api.specification import complete, violations
from podium_controller.domain.errors import LeaseLostError
from podium_controller.training.aliases import BEST
from podium_controller.training.evaluation_scoring import EvaluationScoring
from podium_controller.training.evaluator import Evaluator
from podium_controller.training.judging import Judging
from support.fakes.bench import JOB, Bench

RULER = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)
OWN = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT)
SCENARIOS = 4


def bench_with(*scorers: spec_pb2.Scorer, metric: str = "win_rate") -> Bench:
    """A job whose judge gives what the environment gave."""
    evaluation = spec_pb2.EvaluationSpec(
        reward=spec_pb2.RewardSpec(scorers=scorers), best_metric=metric, samples=2
    )
    bench = Bench(evaluation=evaluation)
    bench.spec.rollout.max_concurrent_groups = bench.spec.rollout.group_size = 1
    return bench


def evaluator(bench: Bench) -> Evaluator:
    def judging(reward: spec_pb2.RewardSpec) -> Judging:
        return Judging(bench.judge, reward, bench.recovery, bench.ledger, bench.spending)

    tasks = [(bench.source, trajectory_pb2.Scenario(id=f"h{i}")) for i in range(SCENARIOS)]
    scoring = EvaluationScoring.of(bench.spec, judging, bench.ledger)
    return Evaluator(JOB, bench.spec, bench.ledger, bench.aliases, bench.reporter, tasks, scoring)


async def serve(bench: Bench, version: int, luck: float | None = None) -> None:
    if version == 0:
        await bench.optimizer.open(None)
    else:
        await bench.optimizer.step(version, [trajectory_pb2.Group(id=f"g{version}")], {}, {})
    await bench.serving.serve(version)
    bench.rollout.luck = luck


async def measured(bench: Bench, version: int, luck: float | None = None) -> pb.Evaluation:
    await serve(bench, version, luck)
    await evaluator(bench).evaluate(version)
    found, _ = await bench.jobs.evaluations(JOB, None, 100)
    return found[-1]


async def test_ruler_makes_a_win_rate_against_the_first_version_and_no_reward_of_its_own() -> None:
    bench = bench_with(RULER)
    first = await measured(bench, 0, 0.6)
    assert first.metrics["win_rate"] == 0.5
    assert not bench.judge.judged
    better, same, worse = [
        await measured(bench, version, luck) for version, luck in ((1, 0.9), (2, 0.6), (3, 0.1))
    ]
    assert [each.metrics["win_rate"] for each in (better, same, worse)] == [1.0, 0.5, 0.0]
    # The environment's own reward stays what it is: a judge's scores of one question are none.
    assert better.metrics["reward"] == pytest.approx(0.9)
    low, high = clustered_share_interval([[1.0, 1.0]] * SCENARIOS)
    assert (better.metrics["win_rate_low"], better.metrics["win_rate_high"]) == (low, high)
    assert bench.registry.aliases[JOB, BEST] == 1
    asked = [count for name, count in bench.judge.judged.items() if name.startswith(f"{JOB}/v1")]
    assert asked == [1] * SCENARIOS


async def test_each_comparison_counts_and_is_paired_by_scenario() -> None:
    bench = bench_with(RULER)
    await measured(bench, 0)
    found = await measured(bench, 1)
    groups = []
    for version in (0, 1):
        stored = await bench.ledger.stored_groups(JOB, version, "sampled")
        groups.append({index: each.group for index, each in stored.items()})
    expected = [
        sum(
            (own.environment_reward > other.environment_reward)
            for other in groups[0][index].trajectories
        )
        / 2
        for index in range(SCENARIOS)
        for own in groups[1][index].trajectories
    ]
    assert found.metrics["win_rate"] == pytest.approx(sum(expected) / len(expected))
    # Each attempt keeps its own.
    kept = [t.metrics["win_rate"] for i in range(SCENARIOS) for t in groups[1][i].trajectories]
    assert kept == expected
    # The reference's attempts are no attempts of the version.
    assert {len(group.trajectories) for group in groups[1].values()} == {2}


@pytest.mark.parametrize("luck", [None, 0.3])
async def test_a_rewards_interval_has_that_of_success_in_it(luck: float | None) -> None:
    bench = bench_with(OWN)
    bench.rollout.fails = lambda group_id: group_id.endswith("/g0")
    found = await measured(bench, 0, luck)
    stored = await bench.ledger.stored_groups(JOB, 0, "sampled")
    # What failed has no reward, and is no failure that the reward tells of.
    groups = [
        [t for t in stored[index].group.trajectories if t.HasField("reward")]
        for index in range(SCENARIOS)
    ]
    assert [len(group) for group in groups] == [0, 2, 2, 2]
    rewards = [[t.reward for t in group] for group in groups]
    successes = [[t.metrics["success"] for t in group] for group in groups]
    bounds = clustered_mean_interval(rewards, successes)
    assert (found.reward_low, found.reward_high) == bounds
    assert luck or bounds != clustered_mean_interval(rewards)


async def test_an_attempt_that_failed_loses_to_one_that_did_not() -> None:
    bench = bench_with(RULER)
    await measured(bench, 0, 0.6)
    bench.rollout.fails = lambda group_id: group_id.endswith("/g0")
    found = await measured(bench, 1, 0.9)
    assert found.metrics["win_rate"] == 0.75
    # Who has nothing to show is not asked about.
    assert len(bench.judge.judged) == SCENARIOS - 1


async def test_a_run_that_dies_in_the_middle_asks_the_judge_for_the_rest() -> None:
    bench = bench_with(RULER)
    await measured(bench, 0, 0.6)
    await serve(bench, 1, 0.9)

    def die() -> None:
        raise LeaseLostError("killed")

    bench.before("score", lambda: None, lambda: None, die)
    with pytest.raises(LeaseLostError):
        await evaluator(bench).evaluate(1)
    assert sum(bench.judge.judged.values()) < SCENARIOS
    await evaluator(bench).evaluate(1)
    (_, found), _ = await bench.jobs.evaluations(JOB, None, 100)
    assert found.metrics["win_rate"] == 1.0
    assert set(bench.judge.judged.values()) == {1}
    assert (await bench.ledger.judge_usage(JOB)).calls == SCENARIOS


async def test_without_the_first_versions_attempts_it_is_told_and_nobody_is_best() -> None:
    bench = bench_with(RULER)
    await bench.optimizer.open(None)
    found = await measured(bench, 1, 0.9)
    assert "win_rate" not in found.metrics
    assert (JOB, BEST) not in bench.registry.aliases
    texts = [each.message for each in bench.events]
    assert any("4 of 4 (no attempts of version 0)" in text for text in texts), texts


async def test_scorers_of_attempts_alone_make_the_reward_and_leave_out_who_has_none() -> None:
    bench = bench_with(OWN, metric="reward")
    bench.rollout.fails = lambda group_id: group_id.endswith("/g0")
    found = await measured(bench, 0, 0.6)
    assert found.metrics["reward"] == pytest.approx(0.6)
    assert found.metrics["unscored_fraction"] == 0.25
    assert len(bench.judge.judged) == SCENARIOS
    assert "win_rate" not in found.metrics


def refused(evaluation: spec_pb2.EvaluationSpec, **fields: object) -> list[str]:
    spec = spec_pb2.JobSpec(base_model="m", evaluation=evaluation, **fields)  # type: ignore[arg-type]
    spec.environment.name = "double"
    spec.training.steps = 3
    return [str(each) for each in violations(pb.Job(spec=complete(spec)))]


def test_what_contradicts_itself_is_refused_by_its_field() -> None:
    ruler = spec_pb2.RewardSpec(scorers=[RULER])
    wins = spec_pb2.EvaluationSpec(best_metric="win_rate", reward=ruler)
    assert refused(wins) == []
    both = spec_pb2.EvaluationSpec(job_reward=True)
    assert refused(both, reward=ruler) == []
    for evaluation, fields, text in (
        (spec_pb2.EvaluationSpec(best_metric="win_rate"), {}, "evaluation.best_metric: got 'win_"),
        (both, {}, "evaluation.job_reward: got true; needs job.spec.reward"),
        (
            spec_pb2.EvaluationSpec(job_reward=True, reward=ruler),
            {"reward": ruler},
            "evaluation.job_reward: got true beside",
        ),
        (
            spec_pb2.EvaluationSpec(reward=spec_pb2.RewardSpec(scorers=[RULER, RULER])),
            {},
            "evaluation.reward.scorers: got 2 SCORER_KIND_RULER",
        ),
        (
            spec_pb2.EvaluationSpec(
                reward=spec_pb2.RewardSpec(scorers=[spec_pb2.Scorer(kind=5, weight=1)])
            ),
            {},
            "evaluation.reward.scorers[0]",
        ),
    ):
        (found, *_) = refused(evaluation, **fields)
        assert found.startswith("job.spec."), found
        assert text in found
