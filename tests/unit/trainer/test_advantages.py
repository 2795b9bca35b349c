"""T14, T15: rewards to advantages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.types.v1 import spec_pb2
from podium_trainer.domain.advantages import advantages, turn_advantages
from support.golden import golden

STD, NONE, BATCH = (
    spec_pb2.ADVANTAGE_KIND_STD,
    spec_pb2.ADVANTAGE_KIND_NONE,
    spec_pb2.ADVANTAGE_KIND_BATCH,
)
REWARDS = st.lists(st.floats(-100, 100), min_size=2, max_size=8).map(np.array)


@pytest.mark.parametrize(
    ("case", "rewards", "kind"),
    [
        ("rewards [1,0]", [1, 0], STD),
        ("rewards [1,0.5,0]", [1, 0.5, 0], STD),
        ("rewards [1,0.5,0], mean only", [1, 0.5, 0], NONE),
    ],
)
def test_golden_advantages_of_art(case: str, rewards: list[float], kind: int) -> None:
    (found,) = advantages([np.array(rewards, np.float64)], kind)  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx(golden("art_losses.json")["advantage"][case], abs=1e-9)


def test_t14_population_and_sample_deviation() -> None:
    rewards = np.array([1.0, 0.5, 0.0])
    (population,) = advantages([rewards], STD, spec_pb2.DEVIATION_POPULATION)
    (sample,) = advantages([rewards], STD, spec_pb2.DEVIATION_SAMPLE)
    assert population[0] == pytest.approx(0.5 / (np.sqrt(1 / 6) + 1e-6), abs=1e-12)
    assert sample[0] == pytest.approx(0.5 / (0.5 + 1e-6), abs=1e-12)


def test_t14_batch_divides_every_group_by_the_deviation_of_all_rewards() -> None:
    groups = [np.array([0.0, 1.0]), np.array([10.0, 30.0])]
    one, two = advantages(groups, BATCH)
    deviation = np.std([0.0, 1.0, 10.0, 30.0]) + 1e-6
    assert one.tolist() == pytest.approx([-0.5 / deviation, 0.5 / deviation])
    assert two.tolist() == pytest.approx([-10 / deviation, 10 / deviation])


@pytest.mark.parametrize("kind", [STD, NONE, BATCH])
@given(rewards=REWARDS, shift=st.floats(-50, 50))
def test_t14_a_shift_changes_nothing(kind: int, rewards: np.ndarray, shift: float) -> None:
    if np.ptp(rewards) < 1e-3:
        return
    (before,) = advantages([rewards], kind)  # type: ignore[arg-type]
    (after,) = advantages([rewards + shift], kind)  # type: ignore[arg-type]
    np.testing.assert_allclose(before, after, atol=1e-6, rtol=1e-6)
    assert abs(before.sum()) < 1e-6


@given(rewards=REWARDS, scale=st.floats(0.5, 20))
def test_t14_a_scale_changes_nothing_but_without_division(
    rewards: np.ndarray, scale: float
) -> None:
    if np.ptp(rewards) < 0.1:
        return
    for kind, factor in ((STD, 1.0), (BATCH, 1.0), (NONE, scale)):
        (before,) = advantages([rewards], kind)
        (after,) = advantages([rewards * scale], kind)
        np.testing.assert_allclose(before * factor, after, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [STD, NONE, BATCH])
def test_t15_float_noise_is_no_advantage(kind: int) -> None:
    noisy, clear = np.array([1.0, 1.0 + 1e-9]), np.array([0.0, 1.0])
    found = advantages([noisy, clear], kind)  # type: ignore[arg-type]
    assert found[0].tolist() == [0, 0]
    assert (np.abs(found[1]) > 0).all()


@pytest.mark.parametrize("kind", [STD, BATCH])
@pytest.mark.parametrize("power", [400, 665, 1020])
def test_rewards_whose_squares_are_beyond_a_double_rank_as_small_ones(
    kind: int, power: int
) -> None:
    small = [np.array([1.0, -2.0, 3.0]), np.array([-4.0, 2.5])]
    # So great that epsilon is nothing beside them.
    expected = advantages([rewards * 2.0**60 for rewards in small], kind)  # type: ignore[arg-type]
    found = advantages([rewards * 2.0**power for rewards in small], kind)  # type: ignore[arg-type]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    turns = [[rewards * 2.0**power for rewards in small]]
    plain = [[rewards * 2.0**60 for rewards in small]]
    (by_turn,) = turn_advantages(turns, kind)  # type: ignore[arg-type]
    (same,) = turn_advantages(plain, kind)  # type: ignore[arg-type]
    for one, other in zip(by_turn, same, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_rewards_at_both_ends_of_a_double_have_finite_advantages() -> None:
    (found,) = advantages([np.array([1.7e308, -1.7e308])], STD)
    assert found.tolist() == pytest.approx([1.0, -1.0])
