"""How often the intervals hold the truth, in simulations whose truth is known."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from statistics import fmean

import numpy
import numpy.typing
import pytest
from podium.core.statistics import (
    clustered_mean_interval,
    clustered_proportion_interval,
    clustered_share_interval,
    paired_interval,
    wilson_interval,
)
from support.full import full

DRAWS = [(200, 0.046), full(4000, 0.0104)]
"""How many, and three standard deviations of a share of 95 % of so many."""
SCENARIOS = 50
Numbers = numpy.typing.NDArray[numpy.float64]


def bimodal(rng: random.Random) -> float:
    return rng.choice((0.05, 0.95))


def uniform(rng: random.Random) -> float:
    return rng.random()


def hard(rng: random.Random) -> float:
    return rng.betavariate(0.3, 1.2)


def alike(rng: random.Random) -> float:
    return 0.3


TASKS: dict[Callable[[random.Random], float], float] = {
    bimodal: 0.5,
    uniform: 0.5,
    hard: 0.2,
    alike: 0.3,
}
"""How a scenario's own rate is drawn, and the mean of that."""


def attempts(rng: random.Random, rate: float, count: int) -> list[float]:
    return [float(rng.random() < rate) for _ in range(count)]


@pytest.mark.parametrize(("draws", "slack"), DRAWS)
@pytest.mark.parametrize("count", [1, 4, 8, 16])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_ninety_five_in_a_hundred_intervals_hold_the_truth(
    task: Callable[[random.Random], float], count: int, draws: int, slack: float
) -> None:
    rng = random.Random(f"{task.__name__}{count}")
    held = {"success": 0, "reward": 0}
    for _ in range(draws):
        drawn = [attempts(rng, task(rng), count) for _ in range(SCENARIOS)]
        low, high = clustered_proportion_interval(drawn)
        held["success"] += low <= TASKS[task] <= high
        # A reward of another scale, over the same scenarios.
        rewards = [[3 * value - 1 for value in each] for each in drawn]
        bounds = clustered_mean_interval(rewards)
        assert bounds is not None
        held["reward"] += bounds[0] <= 3 * TASKS[task] - 1 <= bounds[1]
    for name, hits in held.items():
        # A proportion of 50 trials is coarse: of single attempts a share a little off is its own.
        assert 0.93 - slack <= hits / draws <= 0.97 + slack, (name, hits / draws)


@pytest.mark.parametrize(("draws", "slack"), DRAWS)
@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("gain", [0.0, 0.4])
def test_a_difference_is_held_as_often(gain: float, count: int, draws: int, slack: float) -> None:
    rng = random.Random(f"{gain}{count}")
    held = 0
    for _ in range(draws):
        rates = [rng.betavariate(0.5, 0.5) for _ in range(SCENARIOS)]
        differences = [
            fmean(attempts(rng, rate + gain * (1 - rate), count))
            - fmean(attempts(rng, rate, count))
            for rate in rates
        ]
        bounds = paired_interval(differences, 2 / count)
        assert bounds is not None
        held += bounds[0] <= gain / 2 <= bounds[1]
    assert 0.93 - slack <= held / draws <= 0.98 + slack, held / draws


def scores(rng: numpy.random.Generator, means: Numbers, count: int) -> Numbers:
    """Whole numbers about each of the means, [scenarios, count]."""
    return numpy.rint(rng.normal(means, 1.0, (len(means), count)))


@functools.cache
def win_rate(edge: float) -> float:
    """By a large sample, for ties have no formula."""
    rng = numpy.random.default_rng(round(edge * 10))
    means = rng.random((200_000, 1))
    own, others = scores(rng, edge + means, 1), scores(rng, means, 1)
    assert 0.05 < (own == others).mean() < 0.4
    return float(((own > others) + 0.5 * (own == others)).mean())


@pytest.mark.parametrize(("draws", "slack"), DRAWS)
@pytest.mark.parametrize("count", [1, 4, 8, 16])
@pytest.mark.parametrize("edge", [0.0, 0.8, 2.0])
def test_a_win_rate_is_held_as_often(edge: float, count: int, draws: int, slack: float) -> None:
    """Each attempt against each of the reference's, whose luck they share; a third are ties."""
    rng = numpy.random.default_rng([round(edge * 10), count])
    truth = win_rate(edge)
    held, width, of_trials = 0, 0.0, 0.0
    for _ in range(draws):
        means = rng.random((SCENARIOS, 1))
        others = scores(rng, means, count)[:, None, :]
        own = scores(rng, edge + means, count)[:, :, None]
        shares = ((own > others) + 0.5 * (own == others)).mean(axis=2).tolist()
        low, high = clustered_share_interval(shares)
        held += low <= truth <= high
        width += high - low
        low, high = clustered_proportion_interval(shares)
        of_trials += high - low
    assert 0.93 - slack <= held / draws <= 0.97 + slack, held / draws
    # Ties and shares vary less than the trials that a proportion is of.
    assert width < (0.92 if count == 1 else 0.85) * of_trials


def test_attempts_that_all_resemble_each_other_count_as_one() -> None:
    once = [[1.0]] * 6 + [[0.0]] * 14
    often = [each * 16 for each in once]
    assert clustered_proportion_interval(often) == pytest.approx(
        clustered_proportion_interval(once), abs=0.03
    )
    low, high = clustered_proportion_interval(once)
    narrow = wilson_interval(0.3, 20 * 16)
    assert high - low > 3 * (narrow[1] - narrow[0])


def test_what_never_varied_has_a_width() -> None:
    low, high = clustered_proportion_interval([[0.0] * 4] * 20)
    assert (low, round(high, 2)) == (0, 0.18)
    assert clustered_proportion_interval([[1.0] * 4] * 20)[1] == 1
    low, high = clustered_proportion_interval([[0.0, 1.0]] * 20)
    assert 0.3 < low < 0.5 < high < 0.7
    bounds = paired_interval([0.0] * 20, pseudo=2)
    assert bounds is not None
    assert -bounds[0] == bounds[1] > 0.05


def test_shares_that_never_varied_count_as_their_scenarios() -> None:
    for value in (0.5, 1.0):
        same = clustered_share_interval([[value] * 4] * 20)
        assert same == pytest.approx(clustered_share_interval([[value]] * 20))
        assert same[1] - same[0] > 0.15
    # By rounding alone they do not vary either.
    off = [[0.1 + 0.2, 0.3], [0.3, 0.3], *[[0.3] * 2] * 18]
    assert clustered_share_interval(off) == pytest.approx(clustered_share_interval([[0.3]] * 20))


def test_what_tells_nothing_claims_nothing() -> None:
    assert clustered_share_interval([]) == clustered_share_interval([[]]) == (0, 1)
    assert clustered_share_interval([[0.5, 0.5]]) == wilson_interval(0.5, 1)
    assert clustered_proportion_interval([]) == (0, 1)
    assert clustered_proportion_interval([[]]) == (0, 1)
    low, high = clustered_proportion_interval([[1.0] * 100])
    assert low < 0.25
    assert high == 1
    assert clustered_mean_interval([[1.0, 2.0]]) is None
    assert paired_interval([0.5]) is None


def test_students_t_of_a_table() -> None:
    # A table of Student's t: 2.262 at 9, 2.228 at 10, 2.042 at 30, 1.980 at 120 degrees.
    for freedom, t in ((1, 12.706), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)):
        values = [0.0] * (freedom - 1) + [1.0, -1.0]
        bounds = paired_interval(values)
        assert bounds is not None
        deviation = math.sqrt(2 / freedom / (freedom + 1))
        assert bounds[1] / deviation == pytest.approx(t, abs=2e-3)


def test_what_came_once_is_no_more_certain_than_what_never_came() -> None:
    never = clustered_proportion_interval([[0.0] * 16] * 32)
    once = clustered_proportion_interval([[1.0] + [0.0] * 15, *[[0.0] * 16] * 31])
    # Of 512 trials that tell nothing of each other it would end at 0.011.
    assert 0.05 < once[1] < never[1]
    failed_once = clustered_proportion_interval([[0.0] + [1.0] * 15, *[[1.0] * 16] * 31])
    assert failed_once == pytest.approx((1 - once[1], 1 - once[0]))
    # Where there is something to estimate from, the estimate is what counts.
    many = [[1.0] * 8 + [0.0] * 8, [0.0] * 16] * 50
    low, high = clustered_proportion_interval(many)
    assert high - low == pytest.approx(2 * 1.984 * 0.25 / math.sqrt(99), rel=0.03)


def test_a_reward_of_two_values_is_a_proportion_between_them() -> None:
    wins = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    low, high = clustered_proportion_interval(wins)
    scaled = [[5 * value - 2 for value in each] for each in wins]
    assert clustered_mean_interval(scaled) == pytest.approx((5 * low - 2, 5 * high - 2))
    # What never came has a width: nothing here was above 0, and something may be.
    nothing = clustered_mean_interval([[0.0]] * 20)
    assert nothing == pytest.approx(clustered_proportion_interval([[0.0]] * 20))
    for value, ends in ((-1.0, (-1.0, 1.0)), (2.0, (0.0, 2.0))):
        bounds = clustered_mean_interval([[value]] * 20)
        assert bounds is not None
        assert value in bounds
        assert ends[0] <= bounds[0] < bounds[1] <= ends[1]


def test_a_rare_large_reward_leaves_few_degrees_of_freedom() -> None:
    even = [[0.1 * n] for n in range(20)]
    bounds, plain = clustered_mean_interval(even), paired_interval([each[0] for each in even])
    assert bounds == pytest.approx(plain)
    rare = [[0.01 * n] for n in range(19)] + [[50.0]]
    bounds, plain = clustered_mean_interval(rare), paired_interval([each[0] for each in rare])
    assert bounds is not None
    assert plain is not None
    assert bounds[1] - bounds[0] > 1.5 * (plain[1] - plain[0])


def paid(rng: random.Random, wins: list[list[float]]) -> list[list[float]]:
    """Graded rewards: half and more for a success, less than a fifth for a failure."""
    return [[rng.uniform(0.5, 1) if win else rng.uniform(0, 0.2) for win in each] for each in wins]


@pytest.mark.parametrize(("draws", "slack"), DRAWS)
@pytest.mark.parametrize(("rate", "scenarios", "count"), [(0.05, 10, 8), (0.9, 10, 16)])
def test_a_graded_reward_is_held_where_one_kind_is_rare(
    rate: float, scenarios: int, count: int, draws: int, slack: float
) -> None:
    """Without the successes it was 67 and 83 in a hundred."""
    rng = random.Random(f"{rate}{count}")
    held = 0
    for _ in range(draws):
        rates = [rng.betavariate(rate, 1 - rate) for _ in range(scenarios)]
        wins = [attempts(rng, each, count) for each in rates]
        bounds = clustered_mean_interval(paid(rng, wins), wins)
        assert bounds is not None
        held += bounds[0] <= 0.75 * rate + 0.1 * (1 - rate) <= bounds[1]
    assert held / draws >= 0.93 - slack, held / draws


def mixed(rng: random.Random, scenarios: int = 12) -> tuple[list[list[float]], list[list[float]]]:
    """Rewards, and successes of both kinds, of scenarios with 0 to 3 attempts."""
    wins = [attempts(rng, 0.4, rng.randrange(4)) for _ in range(scenarios)]
    wins += [[1.0], [0.0]]
    return paid(rng, wins), wins


def test_an_interval_of_kinds_holds_the_mean_and_turns_with_the_rewards() -> None:
    rng = random.Random(1)
    for _ in range(100):
        rewards, wins = mixed(rng)
        bounds = clustered_mean_interval(rewards, wins)
        assert bounds is not None
        low, high = bounds
        assert low < fmean(value for each in rewards for value in each) < high
        # Mirrored, where a failure is the better one, and of another scale.
        mirrored = [[-value for value in each] for each in rewards]
        lost = [[1 - win for win in each] for each in wins]
        for kinds in (wins, lost):
            assert clustered_mean_interval(mirrored, kinds) == pytest.approx((-high, -low))
        scaled = [[300 * value - 700 for value in each] for each in rewards]
        assert clustered_mean_interval(scaled, wins) == pytest.approx(
            (300 * low - 700, 300 * high - 700)
        )


def test_of_two_values_the_interval_is_that_of_success() -> None:
    rng = random.Random(2)
    for _ in range(50):
        _, wins = mixed(rng)
        rewards = [[5 * win - 2 for win in each] for each in wins]
        low, high = clustered_proportion_interval(wins)
        bounds = clustered_mean_interval(rewards, wins)
        assert bounds == clustered_mean_interval(rewards)
        assert bounds == pytest.approx((5 * low - 2, 5 * high - 2))
        # Nearly of two values it is nearly that.
        near = [[value + rng.uniform(0, 1e-6) for value in each] for each in rewards]
        assert clustered_mean_interval(near, wins) == pytest.approx(bounds, abs=1e-5)
    for value in (0.0, 0.3, 1.0, 7.0):
        alike = [[value]] * 9
        for win in (0.0, 1.0):
            assert clustered_mean_interval(alike, [[win]] * 9) == clustered_mean_interval(alike)


def test_a_kind_that_did_not_come_may_bring_the_best_or_the_worst() -> None:
    rng = random.Random(3)
    rewards = [[rng.uniform(0, 0.2)] for _ in range(10)]
    mean, never = fmean(each[0] for each in rewards), [[0.0]] * 10
    most = clustered_proportion_interval(never)[1]

    def ends(rewards: list[list[float]], wins: list[list[float]]) -> tuple[float, float]:
        bounds, plain = clustered_mean_interval(rewards, wins), clustered_mean_interval(rewards)
        assert bounds is not None
        assert plain is not None
        # Never narrower than without kinds, and no further where nothing is missing.
        assert bounds[0] <= plain[0] < plain[1] <= bounds[1]
        assert bounds[0] == pytest.approx(plain[0]) or bounds[1] == pytest.approx(plain[1])
        return bounds

    _, high = ends(rewards, never)
    assert high > mean + most * (1 - mean)
    # A failure of such as these may have nothing, and of some below 0 it may have -1.
    good = [[1 - each[0]] for each in rewards]
    low, _ = ends(good, [[1.0]] * 10)
    assert low == pytest.approx(1 - high)
    low, _ = ends([[-0.01], *good], [[1.0]] * 11)
    assert low < ends(good, [[1.0]] * 10)[0] - 0.2
    # Of points nothing is known but the greatest that came.
    points = [[100 * each[0]] for each in rewards]
    plain = clustered_mean_interval(points)
    assert plain is not None
    far = math.hypot(plain[1] - 100 * mean, most * (max(points)[0] - 100 * mean))
    assert ends(points, never) == pytest.approx((plain[0], 100 * mean + far))
    # Format alone is paid: of two values, and there is a third to come.
    formats = [[0.1], [0.0]] * 5
    assert ends(formats, never)[1] > 0.3
    assert clustered_mean_interval(formats, [[1.0], [0.0]] * 5) == clustered_mean_interval(formats)


def test_scenarios_that_are_easy_and_pay_more_vary_together() -> None:
    rng = random.Random(4)
    rates = [rng.betavariate(0.5, 0.5) for _ in range(60)]
    wins = [attempts(rng, rate, 8) for rate in rates]
    rewards = [
        [(0.4 * win + rate * rng.uniform(0.3, 0.6)) for win in each]
        for rate, each in zip(rates, wins, strict=True)
    ]
    bounds, plain = clustered_mean_interval(rewards, wins), clustered_mean_interval(rewards)
    assert bounds is not None
    assert plain is not None
    assert bounds[1] - bounds[0] == pytest.approx(plain[1] - plain[0], rel=0.05)


def test_successes_are_one_for_each_reward() -> None:
    rewards, wins = [[0.1], [], [0.5, 0.9]], [[0.0], [], [1.0, 1.0]]
    assert clustered_mean_interval(rewards, wins) == clustered_mean_interval(
        rewards[::2], wins[::2]
    )
    assert clustered_mean_interval([[0.1, 0.2]], [[0.0, 1.0]]) is None
    assert clustered_mean_interval([], []) is None
    for wrong in ([[0.0], [], [1.0]], [[0.0], [1.0, 1.0]], [[0.0], [1.0], [1.0, 1.0]], []):
        with pytest.raises(ValueError, match="one for each value"):
            clustered_mean_interval(rewards, wrong)
    # Half a success is half of each kind.
    half = clustered_mean_interval([[0.1], [0.5], [0.9]], [[0.0], [0.5], [1.0]])
    assert half is not None
    assert half[0] < 0.5 < half[1]
    huge = clustered_mean_interval([[1e200], [1e199], [0.0]], [[1.0], [1.0], [0.0]])
    assert huge is not None
    assert huge[0] < (1e200 + 1e199) / 3 < huge[1] < 1e201
