"""Which version is the best: by any number of an evaluation, and either of its ends."""

from __future__ import annotations

import pytest
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.best_metric import best_metric_violations
from podium_controller.training.aliases import BEST
from podium_controller.training.evaluator import Evaluator
from support.fakes.bench import JOB, Bench

MIN = spec_pb2.BEST_MODE_MIN


def evaluator(bench: Bench) -> Evaluator:
    tasks = [(bench.source, trajectory_pb2.Scenario(id=f"heldout-{i}")) for i in range(4)]
    return Evaluator(JOB, bench.spec, bench.ledger, bench.aliases, bench.reporter, tasks)


async def measured(bench: Bench, lucks: dict[int, float]) -> None:
    """Versions 0 on, each evaluated with that luck of every attempt."""
    bench.spec.rollout.max_concurrent_groups = bench.spec.rollout.group_size = 2
    await bench.optimizer.open(None)
    for version, luck in lucks.items():
        if version:
            group = trajectory_pb2.Group(id=f"g{version}")
            await bench.optimizer.step(version, [group], {}, {})
        await bench.serving.serve(version)
        bench.rollout.luck = luck
        await evaluator(bench).evaluate(version)


@pytest.mark.parametrize(
    ("metric", "mode", "best"),
    [
        ("reward", spec_pb2.BEST_MODE_MAX, 1),
        ("reward", MIN, 2),
        ("greedy/reward", MIN, 2),
        # Nobody is better than the first, and a tie stays with it.
        ("success", spec_pb2.BEST_MODE_MAX, 0),
    ],
)
async def test_best_and_what_is_kept_follow_the_metric_and_its_better_end(
    metric: str, mode: spec_pb2.BestMode.ValueType, best: int
) -> None:
    evaluation = spec_pb2.EvaluationSpec(best_metric=metric, best_mode=mode, samples=2, greedy=True)
    bench = Bench(evaluation=evaluation, retention=spec_pb2.RetentionSpec(keep_last=1, keep_best=1))
    await measured(bench, {0: 0.6, 1: 0.9, 2: 0.2, 3: 0.55})
    assert bench.registry.aliases[JOB, BEST] == best
    # What the rule keeps, and not only what the alias holds.
    del bench.registry.aliases[JOB, BEST]
    await bench.aliases.retain()
    # Of equals the registry keeps the newer one.
    assert set(bench.registry.models[JOB]) == ({3} if metric == "success" else {best, 3})
    assert not [each for each in bench.events if "cannot become the best" in each.message]


async def test_a_metric_that_is_missing_or_no_number_is_told_and_promotes_nobody() -> None:
    evaluation = spec_pb2.EvaluationSpec(best_metric="words", samples=1, greedy=True)
    bench = Bench(evaluation=evaluation)
    await measured(bench, {0: 0.6})
    (warning,) = [each.message for each in bench.events if "cannot become" in each.message]
    assert "no metric 'words'" in warning
    assert "it has reward, success" in warning
    assert (JOB, BEST) not in bench.registry.aliases


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("", "got an empty value"),
        ("greedy/success", "needs job.spec.evaluation.greedy"),
        ("env/chess/reward", "the job has one environment"),
    ],
)
def test_what_no_evaluation_can_have_is_refused(metric: str, words: str) -> None:
    spec = spec_pb2.JobSpec(evaluation=spec_pb2.EvaluationSpec(best_metric=metric))
    spec.environment.name = "chess"
    (violation,) = best_metric_violations(spec)
    assert violation.field == "job.spec.evaluation.best_metric"
    assert words in violation.description


@pytest.mark.parametrize(
    ("metric", "refused"),
    [
        ("env/chess/reward", False),
        ("greedy/env/chess/mate/fast", False),
        ("reward", False),
        ("greedy/", True),
        ("env/chess/", True),
        ("env/chess", True),
        ("env/go/reward", True),
        ("env/mail/reward", True),
    ],
)
def test_of_several_environments_one_that_is_evaluated_is_named(metric: str, refused: bool) -> None:
    spec = spec_pb2.JobSpec()
    for name in ("chess", "mail"):
        spec.environments.add().environment.name = name
    spec.evaluation.environments.append("chess")
    spec.evaluation.greedy = True
    spec.evaluation.best_metric = metric
    found = best_metric_violations(spec)
    assert bool(found) == refused
    if metric == "env/mail/reward":
        assert "NAME one that is evaluated: 'chess'" in found[0].description
