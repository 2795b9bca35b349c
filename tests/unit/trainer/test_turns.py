"""Turns with advantages of their own: returns, baselines, and which tokens have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.domain.advantages import advantages, turn_advantages
from podium_trainer.domain.batch import Batch, build_batch
from podium_trainer.domain.packing import pack
from podium_trainer.domain.turns import read_turns
from support.tiny_policy import VOCABULARY, group, training_spec, trajectory

TO_GO = {"turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO"}
ADDED = {"turn_advantage": "TURN_ADVANTAGE_ADDED"}
PLAIN = {"advantage": "ADVANTAGE_KIND_NONE"}


def attempt(
    name: str, paid: Sequence[float], *, more: float = 0.0, first: int = 1
) -> trajectory_pb2.Trajectory:
    """Turn k samples k + 1 tokens, and its step pays `paid[k]`; the end pays `more`."""
    tokens, spans = [first], []
    for turn in range(len(paid)):
        tokens.append(2)
        spans.append((len(tokens), turn + 1))
        tokens += [10 + turn] * (turn + 1)
    made = trajectory(name, sum(paid) + more, tokens, spans)
    for reward in paid:
        made.transitions.add(reward=reward)
    return made


def by_token(batch: Batch) -> list[list[float]]:
    return [
        np.broadcast_to(item.advantage, len(item.sample.targets)).tolist() for item in batch.samples
    ]


def batch_of(*attempts: trajectory_pb2.Trajectory, **loss: object) -> Batch:
    return build_batch([group("g", *attempts)], training_spec(loss=loss), VOCABULARY)


def returns(made: trajectory_pb2.Trajectory, discount: float = 1.0) -> list[float]:
    return read_turns(made, made.reward, discount).returns.tolist()


def test_a_return_is_discounted_reward_to_go() -> None:
    made = attempt("t", [1, 0, 4])
    assert returns(made) == [5, 4, 4]
    assert returns(made, 0.5) == [2, 2, 4]
    assert returns(made, 0) == [1, 0, 4]


def test_the_last_turn_earns_what_the_reward_has_beyond_the_steps() -> None:
    assert returns(attempt("t", [1, 0, 4], more=-2)) == [3, 2, 2]
    judged = attempt("t", [1, 1])
    judged.environment_weight, judged.reward = 0.5, 1.75
    assert returns(judged) == [1.75, 1.25]
    assert returns(trajectory("client", 3, [1, 2, 3, 4, 5], [(1, 1), (3, 2)])) == [3, 3]


def test_a_turn_earns_what_others_moves_pay_until_the_next() -> None:
    made = attempt("t", [1, 2])
    del made.transitions[:]
    for conversation, reward in [("other", 7), ("", 1), ("other", 10), ("", 2), ("other", 20)]:
        made.transitions.add(conversation=conversation, reward=reward)
    made.reward = 40
    assert returns(made) == [33, 22]


def test_turns_of_several_histories_are_in_the_order_of_their_steps() -> None:
    made = attempt("t", [1, 4])
    helper = attempt("h", [2, 3]).histories[0]
    helper.conversation = "helper"
    made.histories.append(helper)
    del made.transitions[:]
    for conversation, reward in [("", 1), ("helper", 2), ("helper", 3), ("", 4)]:
        made.transitions.add(conversation=conversation, reward=reward)
    turns = read_turns(made, 10, 1)
    assert turns.returns.tolist() == [10, 9, 7, 4]
    assert turns.runs == [[(0, 1), (3, 2)], [(1, 1), (2, 2)]]
    assert [each.tolist() for each in turns.spread(turns.returns)] == [[10, 4, 4], [9, 7, 7]]


def test_spans_of_two_versions_in_one_generation_are_one_turn() -> None:
    made = trajectory("t", 1, [1, 2, 3, 4, 5, 6], [(1, 1), (2, 2), (5, 1)])
    made.transitions.add(reward=1)
    assert returns(made) == [1, 0]


def test_a_turn_whose_step_was_cut_comes_last() -> None:
    made = attempt("t", [1, 5])
    del made.transitions[1]
    made.reward = 1
    assert returns(made) == [1, 0]


def test_one_turn_each_is_the_group_s_own_advantage() -> None:
    rewards = np.array([1.0, 0.25, 0.0, 3.0])
    for kind in spec_pb2.AdvantageKind.values()[1:]:
        for deviation in spec_pb2.Deviation.values()[1:]:
            if (kind, deviation) == (
                spec_pb2.ADVANTAGE_KIND_NONE,
                spec_pb2.DEVIATION_SAMPLE,
            ):
                continue
            (whole,) = advantages([rewards], kind, deviation)
            (turns,) = turn_advantages([[np.array([r]) for r in rewards]], kind, deviation)
            assert np.concatenate(turns).tolist() == pytest.approx(whole.tolist())


def test_a_turn_is_compared_with_those_who_came_to_it() -> None:
    attempts = [np.array([6.0, 3, 9]), np.array([2.0, 1]), np.array([1.0])]
    (plain,) = turn_advantages([attempts], spec_pb2.ADVANTAGE_KIND_NONE)
    assert [each.tolist() for each in plain] == [[3, 1, 0], [-1, -1], [-2]]
    (scaled,) = turn_advantages([attempts], spec_pb2.ADVANTAGE_KIND_STD)
    deviation = np.sqrt((9 + 1 + 4 + 1 + 1) / 5) + 1e-6
    assert scaled[0].tolist() == pytest.approx([3 / deviation, 1 / deviation, 0])
    (sample,) = turn_advantages([attempts], spec_pb2.ADVANTAGE_KIND_STD, spec_pb2.DEVIATION_SAMPLE)
    assert sample[2].tolist() == pytest.approx([-2 / (np.sqrt(16 / 3) + 1e-6)])


def test_batch_divides_by_the_deviation_of_all_returns() -> None:
    one, two = [np.array([1.0, 0]), np.array([0.0, 0])], [np.array([9.0]), np.array([5.0])]
    found = turn_advantages([one, two], spec_pb2.ADVANTAGE_KIND_BATCH)
    deviation = np.std([1, 0, 0, 0, 9, 5]) + 1e-6
    assert found[0][0].tolist() == pytest.approx([0.5 / deviation, 0])
    assert found[1][0].tolist() == pytest.approx([2 / deviation])


def test_tokens_have_the_advantage_of_their_turn() -> None:
    # The same whole reward: only the turns tell them apart.
    early, late = attempt("g/t0", [2, 0]), attempt("g/t1", [0, 2])
    assert batch_of(early, late).skipped_groups == {"g": "zero_variance"}
    batch = batch_of(early, late, **TO_GO, **PLAIN)
    assert by_token(batch) == [[0, -1, -1], [0, 1, 1]]
    assert batch.zero_variance_groups == 0
    assert batch.turn_metrics() == {"turns": 4, "turns_alone": 0}
    immediate = batch_of(early, late, **TO_GO, **PLAIN, turn_discount=0)
    assert by_token(immediate) == [[1, -1, -1], [-1, 1, 1]]


def test_turns_are_added_to_the_trajectory_s_advantage() -> None:
    good, bad = attempt("g/t0", [3, 1]), attempt("g/t1", [0, 2])
    batch = batch_of(good, bad, **ADDED, **PLAIN, turn_weight=0.5)
    assert by_token(batch) == [[1.5, 0.75, 0.75], [-1.5, -0.75, -0.75]]


def test_without_turns_nothing_is_told_of_them() -> None:
    batch = batch_of(attempt("g/t0", [3, 1]), attempt("g/t1", [0, 2]))
    assert batch.turn_metrics() == {}
    assert {type(item.advantage) for item in batch.samples} == {float}


def test_alike_turns_are_no_group_but_for_a_kl() -> None:
    pair = attempt("g/t0", [1, 2]), attempt("g/t1", [1, 2])
    assert batch_of(*pair, **TO_GO).skipped_groups == {"g": "zero_variance"}
    assert batch_of(*pair, **ADDED).skipped_groups == {"g": "zero_variance"}
    kept = batch_of(*pair, **TO_GO, kl_coefficient=0.1)
    assert kept.zero_variance_groups == 1
    assert by_token(kept) == [[0, 0, 0]] * 2


def test_rewards_that_overflow_cost_the_attempt_alone() -> None:
    wild = attempt("g/t2", [1e308, 1e308])
    wild.reward = 1
    unknown = attempt("g/t3", [float("nan"), 0])
    unknown.reward = 1
    batch = batch_of(attempt("g/t0", [1, 0]), attempt("g/t1", [0, 0]), wild, unknown, **TO_GO)
    assert batch.skipped_trajectories == {
        "g/t2": "reward_not_finite",
        "g/t3": "reward_not_finite",
    }
    assert len(batch.samples) == 2


def test_a_penalty_is_paid_at_the_end() -> None:
    cut, whole = attempt("g/t0", [1, 1]), attempt("g/t1", [1, 1])
    cut.stop_reason = trajectory_pb2.STOP_REASON_CONTEXT_LENGTH
    penalty = {"overlong": "OVERLONG_PENALIZE", "overlong_penalty": 2.0}
    batch = batch_of(cut, whole, **TO_GO, **PLAIN, **penalty, turn_discount=0)
    assert by_token(batch) == [[0, -1, -1], [0, 1, 1]]


def test_a_packed_row_keeps_each_token_s_advantage() -> None:
    # They part after the first turn, and tokens of a row are ordered by who predicts them.
    attempts = [attempt(f"g/t{i}", [i, 1, i * i]) for i in range(3)]
    batch = batch_of(*attempts, **TO_GO)
    expected = sorted(
        (item.trajectory, int(position), np.float32(value))
        for item, values in zip(batch.samples, by_token(batch), strict=True)
        for position, value in zip(item.sample.positions, values, strict=True)
    )
    (row,) = pack(batch.samples, 4096)
    depths = row.positions[row.slot_nodes[row.slots]]
    assert sorted(zip(row.trajectories, depths, row.advantages, strict=True)) == expected
    assert len({value for _, _, value in expected}) > 3
