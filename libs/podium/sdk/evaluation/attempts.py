"""What an agent achieved, attempt by attempt and in sum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podium.core.means import mean_of
from podium.core.statistics import (
    clustered_mean_interval,
    clustered_proportion_interval,
    pass_at_k,
)

SUCCESS = "success"
THRESHOLD = 0.5


@dataclass(frozen=True)
class Attempt:
    """One episode."""

    scenario_id: str
    attempt: int
    reward: float
    """Not finite where the environment, or a scorer in its place, gave no number: the mean reward
    leaves it out."""
    terminated: bool
    """The task ended, and was not cut."""
    turns: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""
    """What was raised; empty when nothing was."""
    unanswered: bool = False
    """It failed because the model behind an API was never heard. It tells nothing of the model,
    and no rate or mean counts it."""
    decided: bool | None = None
    """Whether it succeeded, where that is known already; None for the rule of `succeeded`."""

    def succeeded(self, threshold: float | None = None) -> bool:
        """By the environment's own `success`, if it reports one and `threshold` is None.

        Otherwise when the task ended with a reward above the threshold, 0.5 unless given. What
        was `decided` stays.
        """
        if self.decided is not None:
            return self.decided
        if self.failure:
            return False
        if threshold is None and SUCCESS in self.metrics:
            return self.metrics[SUCCESS] > 0.5
        return self.terminated and self.reward > (THRESHOLD if threshold is None else threshold)


@dataclass(frozen=True)
class Summary:
    """An agent's numbers over all attempts."""

    scenarios: int
    attempts: int
    """Those that were answered."""
    failed: int
    """Attempts in which something was raised."""
    unanswered: int
    """Attempts beside `attempts` whose model was never heard."""
    success: float
    low: float
    high: float
    """The 95 % interval of `success` over scenarios: see `clustered_proportion_interval`."""
    unscored: int
    """Attempts among `attempts` without a finite reward."""
    reward: float
    """NaN when no attempt has one."""
    reward_low: float | None
    reward_high: float | None
    """The 95 % interval of `reward`: see `clustered_mean_interval`, with the successes; None of a
    single scenario."""
    turns: float
    pass_at: Mapping[int, float]
    """By k, for 1, 2, 4, … up to the attempts that each scenario has."""
    metrics: Mapping[str, float]
    """Means over the attempts that report them, as finite numbers."""


def answered(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that count."""
    return [attempt for attempt in attempts if not attempt.unanswered]


def finite_rewards(attempts: Sequence[Attempt]) -> list[float]:
    """The rewards that are numbers."""
    return [attempt.reward for attempt in attempts if math.isfinite(attempt.reward)]


def by_scenario(attempts: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    """The attempts of each scenario, in the order of the first ones."""
    found: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        found.setdefault(attempt.scenario_id, []).append(attempt)
    return found


def summarise(attempts: Sequence[Attempt], threshold: float | None = None) -> Summary:
    """See `Attempt.succeeded` for `threshold`.

    Raises:
        ValueError: there is no attempt, or none was answered.
    """
    if not attempts:
        raise ValueError("there is no attempt to summarise")
    unanswered = sum(attempt.unanswered for attempt in attempts)
    attempts = answered(attempts)
    if not attempts:
        raise ValueError(f"all {unanswered} attempts were never answered")
    successes = {
        scenario: [attempt.succeeded(threshold) for attempt in each]
        for scenario, each in by_scenario(attempts).items()
    }
    success = mean_of(value for each in successes.values() for value in each)
    low, high = clustered_proportion_interval(list(successes.values()))
    rewards = finite_rewards(attempts)
    scored = by_scenario([each for each in attempts if math.isfinite(each.reward)]).values()
    reward_low, reward_high = clustered_mean_interval(
        [finite_rewards(each) for each in scored],
        [[attempt.succeeded(threshold) for attempt in each] for each in scored],
    ) or (None, None)
    most = min(len(each) for each in successes.values())
    metrics: dict[str, list[float]] = {}
    for attempt in attempts:
        for name, value in attempt.metrics.items():
            if math.isfinite(value):
                metrics.setdefault(name, []).append(value)
    return Summary(
        scenarios=len(successes),
        attempts=len(attempts),
        unanswered=unanswered,
        failed=sum(bool(attempt.failure) for attempt in attempts),
        success=success,
        low=low,
        high=high,
        unscored=len(attempts) - len(rewards),
        reward=mean_of(rewards) if rewards else math.nan,
        reward_low=reward_low,
        reward_high=reward_high,
        turns=mean_of(attempt.turns for attempt in attempts),
        pass_at={
            k: mean_of(pass_at_k(len(each), sum(each), k) for each in successes.values())
            for k in (2**power for power in range(most.bit_length()))
        },
        metrics={name: mean_of(values) for name, values in sorted(metrics.items())},
    )
