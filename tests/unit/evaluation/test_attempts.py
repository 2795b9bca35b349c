"""What counts as a success, and what is made of many attempts."""

from __future__ import annotations

import math

import pytest
from podium.core.statistics import clustered_mean_interval
from podium.sdk.evaluation import Attempt, by_scenario, compare, summarise


def attempt(
    scenario: str, number: int = 0, reward: float = 0.0, terminated: bool = True, **more: object
) -> Attempt:
    return Attempt(scenario, number, reward, terminated, 3, **more)


def test_s13_success_is_done_with_a_reward_above_one_half() -> None:
    rewards = (0.9, 0.51, 1.0, 0.5)
    attempts = [attempt(f"s{i}", reward=reward) for i, reward in enumerate(rewards)]
    assert [each.succeeded() for each in attempts] == [True, True, True, False]
    assert f"{summarise(attempts).success:.2%}" == "75.00%"
    assert not attempt("s", reward=0.9, terminated=False).succeeded()


def test_the_environments_own_success_counts_unless_a_threshold_is_given() -> None:
    lucky = attempt("s", reward=0.9, metrics={"success": 0.0})
    assert not lucky.succeeded()
    assert lucky.succeeded(threshold=0.8)
    assert not lucky.succeeded(threshold=0.9)
    assert not attempt("s", reward=2.0, failure="ValueError: no").succeeded(threshold=0.1)


def test_summaries_hold_every_attempt() -> None:
    attempts = [
        attempt("a", 0, 1.0, metrics={"success": 1.0, "hits": 4.0}),
        attempt("a", 1, 0.0, metrics={"success": 0.0}),
        attempt("b", 0, 0.0, metrics={"success": 0.0, "hits": 2.0}),
        attempt("b", 1, 0.0, terminated=False, failure="OSError: gone"),
    ]
    found = summarise(attempts)
    assert (found.scenarios, found.attempts, found.failed) == (2, 4, 1)
    assert found.success == 0.25
    assert found.low < 0.25 < found.high
    assert found.pass_at == {1: 0.25, 2: 0.5}
    assert found.metrics == {"hits": 3.0, "success": pytest.approx(1 / 3)}
    assert list(by_scenario(attempts)) == ["a", "b"]
    with pytest.raises(ValueError, match="no attempt"):
        summarise([])


def test_a_rewards_interval_counts_a_success_that_did_not_come() -> None:
    rewards = [0.01 * number for number in range(10)]
    attempts = [attempt(f"s{i}", reward=reward) for i, reward in enumerate(rewards)]
    attempts += [attempt("s0", 1, reward=math.nan, metrics={"success": 1.0})]
    found = summarise(attempts)
    clusters = [[reward] for reward in rewards]
    expected = clustered_mean_interval(clusters, [[0.0]] * 10)
    # An attempt without a reward is none that this tells of.
    assert (found.reward_low, found.reward_high) == expected
    assert found.reward_high is not None
    assert found.reward_high > 0.25
    # By another threshold they are other kinds.
    other = summarise(attempts, threshold=0.055)
    kinds = [[float(reward > 0.055)] for reward in rewards]
    assert (other.reward_low, other.reward_high) == clustered_mean_interval(clusters, kinds)
    assert other.reward_high is not None
    assert other.reward_high < 0.1


def test_a_comparison_pairs_scenarios() -> None:
    first = [attempt(f"s{i}", n, reward=float(i < 2)) for i in range(6) for n in range(2)]
    second = [attempt(f"s{i}", n, reward=float(i < 5)) for i in range(7) for n in range(2)]
    found = compare(first, second)
    assert (found.scenarios, found.better, found.worse) == (6, 3, 0)
    assert found.difference == pytest.approx(0.5)
    assert found.p_value == pytest.approx(2 / 2**3)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5 < found.high
    # Without a success on either side there is still a reward to compare.
    poor = [attempt(f"s{i}", reward=0.01) for i in range(12)]
    better = [attempt(f"s{i}", reward=0.11 + 0.001 * i) for i in range(12)]
    other = compare(poor, better)
    assert (other.difference, other.p_value) == (0, 1)
    assert other.reward_difference == pytest.approx(0.1055)
    assert other.reward_low is not None
    assert other.reward_low > 0.1
    assert other.reward_p_value < 0.001
    assert compare(second, first).difference == pytest.approx(-0.5)
    with pytest.raises(ValueError, match="no scenario in common"):
        compare(first, [attempt("other")])
