"""Two agents on the same scenarios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podium.core.means import mean_of
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


@dataclass(frozen=True)
class ScenarioMeans:
    """What an agent achieved on one scenario."""

    attempts: int
    """Those that were answered; at least one."""
    success: float
    """Share of them that succeeded."""
    reward: float | None
    """Mean of those that are numbers; None where none is."""


@dataclass(frozen=True)
class Paired:
    """The second's differences from the first, scenario by scenario."""

    scenarios: list[str]
    """Those that both attempted, in the first's order."""
    success: list[float]
    """Of each of them."""
    reward: list[float]
    """Of those of which both have a reward."""
    fewest: int
    """Attempts that any of the scenarios has of either."""

    def success_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean difference; None of a single scenario."""
        # Rates of few attempts are coarse: what is added to them lessens with the attempts.
        bounds = paired_interval(self.success, 2 / self.fewest)
        # Two rates differ by no more, whatever Student's t says of a few.
        return bounds and (max(-1.0, bounds[0]), min(1.0, bounds[1]))

    def reward_interval(self) -> tuple[float, float] | None:
        """As `success_interval`."""
        return paired_interval(self.reward)


def pair(first: Mapping[str, ScenarioMeans], second: Mapping[str, ScenarioMeans]) -> Paired:
    """Pairs by scenario, so that hard and easy scenarios do not hide the difference.

    Raises:
        ValueError: no scenario was attempted by both.
    """
    shared = [scenario for scenario in first if scenario in second]
    if not shared:
        raise ValueError("the two have no scenario in common")
    both = [(first[each], second[each]) for each in shared]
    return Paired(
        scenarios=shared,
        success=[two.success - one.success for one, two in both],
        reward=[
            two.reward - one.reward
            for one, two in both
            if one.reward is not None and two.reward is not None
        ],
        fewest=min(min(one.attempts, two.attempts) for one, two in both),
    )


def compare(
    first: Sequence[Attempt], second: Sequence[Attempt], threshold: float | None = None
) -> Comparison:
    """See `pair`. Attempts that were never answered count for nothing.

    Raises:
        ValueError: no scenario was attempted by both.
    """
    paired = pair(_means(first, threshold), _means(second, threshold))
    low, high = paired.success_interval() or (None, None)
    reward_low, reward_high = paired.reward_interval() or (None, None)
    return Comparison(
        scenarios=len(paired.scenarios),
        difference=mean_of(paired.success),
        low=low,
        high=high,
        better=sum(value > 0 for value in paired.success),
        worse=sum(value < 0 for value in paired.success),
        p_value=sign_flip_p_value(paired.success),
        reward_difference=mean_of(paired.reward) if paired.reward else math.nan,
        reward_low=reward_low,
        reward_high=reward_high,
        reward_p_value=sign_flip_p_value(paired.reward),
    )


def _means(attempts: Sequence[Attempt], threshold: float | None) -> dict[str, ScenarioMeans]:
    found = {}
    for scenario, each in by_scenario(answered(attempts)).items():
        rewards = finite_rewards(each)
        found[scenario] = ScenarioMeans(
            attempts=len(each),
            success=mean_of(attempt.succeeded(threshold) for attempt in each),
            reward=mean_of(rewards) if rewards else None,
        )
    return found
