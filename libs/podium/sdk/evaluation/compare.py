"""Two agents on the same scenarios."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from podium.core.statistics import paired_interval, sign_flip_p_value
from podium.sdk.evaluation.attempts import Attempt, answered, by_scenario, finite_rewards


@dataclass(frozen=True)
class Comparison:
    """The second against the first, over the scenarios that both attempted."""

    scenarios: int
    difference: float
    """Mean over scenarios of the second's success rate less the first's."""
    low: float | None
    high: float | None
    """The 95 % interval of `difference`: see `paired_interval`; None of a single scenario."""
    better: int
    """Scenarios in which the second's rate is higher."""
    worse: int
    p_value: float
    """Of no difference, two-sided; see `sign_flip_p_value`."""
    reward_difference: float
    """Mean over scenarios of the second's mean reward less the first's; NaN when both have one in
    no scenario."""
    reward_low: float | None
    reward_high: float | None
    reward_p_value: float


def compare(
    first: Sequence[Attempt], second: Sequence[Attempt], threshold: float | None = None
) -> Comparison:
    """Pairs by scenario, so that hard and easy scenarios do not hide the difference.

    Attempts that were never answered count for nothing.

    Raises:
        ValueError: no scenario was attempted by both.
    """
    one, two = by_scenario(answered(first)), by_scenario(answered(second))
    shared = [scenario for scenario in one if scenario in two]
    if not shared:
        raise ValueError("the two have no scenario in common")
    differences = [
        _rate(two[scenario], threshold) - _rate(one[scenario], threshold) for scenario in shared
    ]
    # Rates of few attempts are coarse: what is added to them lessens with the attempts.
    fewest = min(len(side[scenario]) for side in (one, two) for scenario in shared)
    low, high = paired_interval(differences, 2 / fewest) or (None, None)
    pairs = [(finite_rewards(one[each]), finite_rewards(two[each])) for each in shared]
    rewards = [fmean(b) - fmean(a) for a, b in pairs if a and b]
    reward_low, reward_high = paired_interval(rewards) or (None, None)
    return Comparison(
        scenarios=len(shared),
        difference=fmean(differences),
        low=low,
        high=high,
        better=sum(value > 0 for value in differences),
        worse=sum(value < 0 for value in differences),
        p_value=sign_flip_p_value(differences),
        reward_difference=fmean(rewards) if rewards else math.nan,
        reward_low=reward_low,
        reward_high=reward_high,
        reward_p_value=sign_flip_p_value(rewards),
    )


def _rate(attempts: Sequence[Attempt], threshold: float | None) -> float:
    return fmean(attempt.succeeded(threshold) for attempt in attempts)
