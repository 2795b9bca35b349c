"""What a stored evaluation must be, and the numbers that follow from its scenarios."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any

from podium.core.contract.judging import scorer_violations
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.means import mean_of
from podium.core.statistics import (
    clustered_mean_interval,
    clustered_proportion_interval,
    clustered_share_interval,
)
from podium.jobs.v1 import evaluation_service_pb2 as pb

MAX_SCENARIOS = 100_000
MAX_BYTES = 64 * 2**20
"""Of all scenarios of one evaluation."""

_OUTPUT: tuple[Any, ...] = (
    "id",
    "create_time",
    "scenarios",
    "counted",
    "unanswered",
    "success",
    "mean_reward",
    "win_rate",
)
_MOST_VIOLATIONS = 20
"""Violations that one error names: of ten thousand wrong scenarios the first will do."""


@dataclass(frozen=True)
class NewEvaluation:
    """An evaluation to store, with its numbers; `digest` is of what its client sent."""

    evaluation: pb.StoredEvaluation
    results: Sequence[pb.ScenarioResult]
    request_id: str
    digest: str


def checked(header: pb.EvaluationHeader, results: Sequence[pb.ScenarioResult]) -> NewEvaluation:
    """What a client sent, as it is stored.

    Raises:
        InvalidArgumentError: with the first of the violations.
    """
    found = list(islice(_violations(header.evaluation, results), _MOST_VIOLATIONS))
    if found:
        raise InvalidArgumentError(violations=found, reason="INVALID_EVALUATION")
    evaluation = pb.StoredEvaluation()
    evaluation.CopyFrom(header.evaluation)
    for name in _OUTPUT:
        evaluation.ClearField(name)
    evaluation.attempts = evaluation.attempts or 1
    digest = _digest(evaluation, results)
    _summarise(evaluation, results)
    return NewEvaluation(evaluation, results, header.request_id, digest)


def _violations(
    evaluation: pb.StoredEvaluation, results: Sequence[pb.ScenarioResult]
) -> Iterable[Violation]:
    judged = evaluation.HasField("judge")
    if judged and not evaluation.reference:
        text = "is required with a judge: whose attempts the wins are against"
        yield Violation("header.evaluation.reference", text)
    for name, spec in (("reward", evaluation.reward), ("judge", evaluation.judge)):
        for index, scorer in enumerate(spec.scorers):
            yield from scorer_violations(scorer, f"header.evaluation.{name}.scorers[{index}]")
    if not results:
        yield Violation("scenarios", "got none; allowed is at least one scenario")
    counts = Counter(result.scenario_id for result in results)
    for index, result in enumerate(results):
        path = f"scenarios[{index}]"
        if counts[result.scenario_id] > 1:
            text = f"got {result.scenario_id!r} {counts[result.scenario_id]} times; allowed is once"
            yield Violation(f"{path}.scenario_id", text)
        attempts = len(result.successes)
        for name in ("rewards", "turns", "wins"):
            count = len(getattr(result, name))
            if count != attempts and not (name == "wins" and count == 0):
                text = f"got {count}; allowed is one for each of successes, {attempts}"
                yield Violation(f"{path}.{name}", text)
        if result.wins and not judged:
            text = "needs header.evaluation.judge, which says who judged"
            yield Violation(f"{path}.wins", text)
        for value in result.wins:
            if not (0 <= value <= 1 or math.isnan(value)):
                text = f"got {value:g}; allowed are numbers from 0 to 1, and NaN"
                yield Violation(f"{path}.wins", text)
        for value in result.rewards:
            if math.isinf(value):
                text = f"got {value:g}; allowed are finite numbers, and NaN for none"
                yield Violation(f"{path}.rewards", text)
        if result.failed > attempts:
            text = f"got {result.failed} of {attempts} attempts"
            yield Violation(f"{path}.failed", text)
        for name, number in result.metrics.items():
            if not math.isfinite(number):
                text = f"got {number}; allowed are finite numbers"
                yield Violation(f"{path}.metrics[{name!r}]", text)


def _digest(evaluation: pb.StoredEvaluation, results: Sequence[pb.ScenarioResult]) -> str:
    whole = hashlib.sha256(evaluation.SerializeToString(deterministic=True))
    for result in results:
        body = result.SerializeToString(deterministic=True)
        whole.update(len(body).to_bytes(8) + body)
    return whole.hexdigest()


def _summarise(evaluation: pb.StoredEvaluation, results: Sequence[pb.ScenarioResult]) -> None:
    successes = [[float(each) for each in result.successes] for result in results]
    evaluation.scenarios = len(results)
    evaluation.counted = sum(map(len, successes))
    evaluation.unanswered = sum(result.unanswered for result in results)
    if evaluation.counted:
        bounds = clustered_proportion_interval(successes)
        evaluation.success.CopyFrom(_interval(successes, bounds))
    rewards = [_numbers(result.rewards) for result in results]
    if any(rewards):
        rewarded = [
            list(compress(own, (not math.isnan(each) for each in result.rewards)))
            for own, result in zip(successes, results, strict=True)
        ]
        interval = _interval(rewards, clustered_mean_interval(rewards, rewarded))
        evaluation.mean_reward.CopyFrom(interval)
    wins = [_numbers(result.wins) for result in results]
    if any(wins):
        evaluation.win_rate.CopyFrom(_interval(wins, clustered_share_interval(wins)))


def _interval(
    clusters: Sequence[Sequence[float]], bounds: tuple[float, float] | None
) -> pb.Interval:
    low, high = bounds or (None, None)
    return pb.Interval(mean=mean_of(v for each in clusters for v in each), low=low, high=high)


def _numbers(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]
