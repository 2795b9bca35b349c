"""T13, T15, T16, T18: what of a step's groups trains, and with which share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import trajectory_pb2
from podium_trainer.domain.batch import Batch, build_batch, row_budget
from support.tiny_policy import VOCABULARY, group, training_spec, trajectory


def attempt(
    name: str, reward: float | None, sampled: int, *, histories: int = 1
) -> trajectory_pb2.Trajectory:
    """`sampled` trained tokens in every history."""
    tokens = [1, 2, *range(3, 3 + sampled)]
    made = trajectory(name, reward, tokens, [(2, sampled)])
    for extra in range(1, histories):
        other = trajectory("x", 0, [9 + extra, *tokens[1:]], [(2, sampled)])
        made.histories.append(other.histories[0])
    return made


def batch_of(*groups: trajectory_pb2.Group, **loss: object) -> Batch:
    return build_batch(groups, training_spec(loss=loss), VOCABULARY)


def weights(batch: Batch) -> list[float]:
    """Of each trajectory: the sum over its tokens."""
    sums = np.zeros(batch.trajectories)
    for item in batch.samples:
        sums[item.trajectory] += item.weight * len(item.sample.targets)
    return sums.tolist()


PAIR = (attempt("g/t0", 1, 2), attempt("g/t1", 0, 6))


def test_t13_token_mean() -> None:
    assert weights(batch_of(group("g", *PAIR))) == pytest.approx([2 / 8, 6 / 8])


def test_t13_sequence_mean_gives_short_and_long_the_same() -> None:
    batch = batch_of(group("g", *PAIR), aggregation="AGGREGATION_KIND_SEQUENCE")
    assert weights(batch) == pytest.approx([1 / 2, 1 / 2])


def test_t13_constant_divides_by_a_length_that_no_batch_decides() -> None:
    batch = batch_of(
        group("g", *PAIR), aggregation="AGGREGATION_KIND_CONSTANT", aggregation_tokens=10
    )
    assert weights(batch) == pytest.approx([2 / 20, 6 / 20])
    assert {item.weight for item in batch.samples} == {1 / 20}


def test_t13_a_trajectory_of_three_histories_weighs_once() -> None:
    forked = group("g", attempt("g/t0", 1, 2, histories=3), attempt("g/t1", 0, 6))
    batch = batch_of(forked, aggregation="AGGREGATION_KIND_SEQUENCE")
    assert len(batch.samples) == 4
    assert weights(batch) == pytest.approx([1 / 2, 1 / 2])
    assert batch.tokens_by_trajectory().tolist() == [6, 6]


def alike(name: str) -> trajectory_pb2.Group:
    return group(name, attempt(f"{name}/t0", 1, 3), attempt(f"{name}/t1", 1 + 1e-9, 3))


def test_t15_a_group_of_equal_rewards_is_left_out_and_divides_nothing() -> None:
    alone = batch_of(group("g", *PAIR))
    both = batch_of(group("g", *PAIR), alike("h"))
    assert both.skipped_groups == {"h": "zero_variance"}
    assert both.trajectories == 2
    assert weights(both) == weights(alone)
    assert [i.advantage for i in both.samples] == [i.advantage for i in alone.samples]


def test_t15_a_kl_in_the_loss_still_trains_it() -> None:
    batch = batch_of(group("g", *PAIR), alike("h"), kl_coefficient=0.1)
    assert batch.skipped_groups == {}
    assert batch.zero_variance_groups == 1
    assert [item.advantage for item in batch.samples if item.group == 1] == [0, 0]


def test_t15_a_kl_in_the_advantage_does_not() -> None:
    batch = batch_of(alike("h"), kl_coefficient=0.1, kl_placement="KL_PLACEMENT_ADVANTAGE")
    assert batch.skipped_groups == {"h": "zero_variance"}


def test_t16_failed_attempts_shrink_the_group() -> None:
    failed = attempt("g/t2", -5, 3)
    failed.stop_reason = trajectory_pb2.STOP_REASON_FAILED
    unscored = attempt("g/t3", None, 3)
    broken = attempt("g/t4", float("nan"), 3)
    batch = batch_of(group("g", *PAIR, failed, unscored, broken))
    assert batch.skipped_trajectories == {
        "g/t2": "failed",
        "g/t3": "no_reward",
        "g/t4": "reward_not_finite",
    }
    assert [item.advantage for item in batch.samples] == pytest.approx([1, -1], abs=1e-5)


def test_t16_a_group_of_one_and_a_group_of_none() -> None:
    batch = batch_of(
        group("g", attempt("g/t0", 1, 2), attempt("g/t1", None, 2)),
        group("h", attempt("h/t0", None, 2)),
    )
    assert batch.skipped_groups == {"g": "group_of_one", "h": "all_failed"}
    assert batch.samples == []


def long_group(name: str, *lengths: int) -> trajectory_pb2.Group:
    """Attempts of so many context tokens; the longer one, the better."""
    return group(
        name,
        *(
            trajectory(f"{name}/t{i}", float(length), [1] * (length + 1), [(length - 9, 10)])
            for i, length in enumerate(lengths)
        ),
    )


def test_attempts_of_any_length_train_where_the_job_sets_no_limit() -> None:
    """Those who open the trainer alone; a job's controller writes the pool's context."""
    batch = batch_of(long_group("g", 5000, 1500, 5000, 1500))
    assert batch.trajectories == 4
    assert batch.too_long_metrics() == {}
    assert row_budget(batch, 2048, training_spec()) == 5000


def test_attempts_over_the_limit_are_counted_though_their_whole_group_goes() -> None:
    training = training_spec(max_row_tokens=4096)
    batch = build_batch(
        [long_group("g", 5000, 1500, 4096, 1600), long_group("h", 5001, 7000)], training, VOCABULARY
    )
    assert batch.skipped_trajectories == {"g/t0": "over_max_row_tokens"}
    assert batch.skipped_groups == {"h": "no_trainable_trajectory"}
    assert batch.too_long_metrics() == {
        "trajectories_over_max_row_tokens": 3,
        "trajectory_tokens_max": 7000,
    }
    assert row_budget(batch, 2048, training) == 4096


@pytest.mark.parametrize(
    ("row_tokens", "allowed", "expected"), [(2048, 4096, 2048), (16384, 16384, 16384)]
)
def test_rows_are_of_the_size_that_the_trainer_is_set_to(
    row_tokens: int, allowed: int, expected: int
) -> None:
    """A pool of 2,048 tokens, as before; one of 16,384 with ROW_TOKENS to match."""
    batch = batch_of(long_group("g", 1500, 1600))
    assert row_budget(batch, row_tokens, training_spec(max_row_tokens=allowed)) == expected


def cut_group() -> trajectory_pb2.Group:
    cut = attempt("g/t2", 1, 4)
    cut.histories[0].tokens.spans[0].finish_reason = trajectory_pb2.FINISH_REASON_LENGTH
    outgrown = attempt("g/t3", 0, 4)
    outgrown.stop_reason = trajectory_pb2.STOP_REASON_CONTEXT_LENGTH
    return group("g", *PAIR, cut, outgrown)


def rewards_seen(batch: Batch) -> Sequence[float]:
    return [item.advantage for item in batch.samples]


def test_t18_cut_attempts_train_unless_told() -> None:
    assert len(batch_of(cut_group()).samples) == 4


def test_t18_masked_attempts_stay_in_the_mean() -> None:
    batch = batch_of(cut_group(), overlong="OVERLONG_MASK", advantage="ADVANTAGE_KIND_NONE")
    assert batch.skipped_trajectories == {"g/t2": "overlong", "g/t3": "overlong"}
    assert rewards_seen(batch) == [0.5, -0.5]


def test_t18_a_penalty_comes_before_the_mean() -> None:
    batch = batch_of(
        cut_group(),
        overlong="OVERLONG_PENALIZE",
        overlong_penalty=2,
        advantage="ADVANTAGE_KIND_NONE",
    )
    # Rewards 1, 0, 1 - 2, 0 - 2.
    assert rewards_seen(batch) == [1.5, 0.5, -0.5, -1.5]


def test_supervised_reads_no_rewards() -> None:
    demonstration = attempt("g/t0", None, 3)
    demonstration.histories[0].tokens.spans[0].temperature = 0
    demonstration.histories[0].tokens.ClearField("logprobs")
    batch = batch_of(group("g", demonstration), objective="OBJECTIVE_SUPERVISED")
    assert batch.skipped_groups == {}
    (item,) = batch.samples
    assert item.sample.temperatures.tolist() == [1, 1, 1]
    assert weights(batch) == [1]


def test_t6_missing_logprobs_train_as_not_a_number() -> None:
    unknown = attempt("g/t0", 1, 2)
    unknown.histories[0].tokens.ClearField("logprobs")
    partly = attempt("g/t1", 0, 2)
    partly.histories[0].tokens.logprobs[0] = float("-inf")
    batch = batch_of(group("g", unknown, partly))
    assert [np.isnan(item.sample.logprobs).tolist() for item in batch.samples] == [
        [True, True],
        [True, False],
    ]


def test_an_id_that_comes_twice_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="came twice"):
        batch_of(group("g", *PAIR), group("g", *PAIR))


def side(made: trajectory_pb2.Trajectory, name: str) -> trajectory_pb2.Trajectory:
    made.side = name
    return made


def test_sides_have_a_mean_of_their_own() -> None:
    """Else the side that has the easier game would be praised for it."""
    whole = group(
        "g",
        attempt("g/t0", 1.0, 2),
        side(attempt("g/t0/o", 0.0, 3), "o"),
        attempt("g/t1", 0.5, 4),
        side(attempt("g/t1/o", 0.5, 5), "o"),
    )
    batch = batch_of(whole, advantage="ADVANTAGE_KIND_NONE")
    found = {len(item.sample.targets): item.advantage for item in batch.samples}
    assert found == pytest.approx({2: 0.25, 3: -0.25, 4: -0.25, 5: 0.25})
    # What is packed together shares a prompt, and sides do not.
    assert len({item.group for item in batch.samples}) == 2


def test_a_side_that_says_nothing_leaves_the_other_to_train() -> None:
    whole = group(
        "g",
        attempt("g/t0", 1.0, 2),
        side(attempt("g/t0/o", 0.5, 3), "o"),
        attempt("g/t1", 0.5, 4),
        side(attempt("g/t1/o", 0.5, 5), "o"),
    )
    batch = batch_of(whole)
    assert batch.trajectories == 2
    assert batch.skipped_groups == {}
    assert batch.skipped_trajectories == {"g/t0/o": "zero_variance", "g/t1/o": "zero_variance"}
    alike = group("g", *(side(attempt(f"g/t{n}", 0.5, 2), "o" * (n % 2)) for n in range(4)))
    assert batch_of(alike).skipped_groups == {"g": "zero_variance"}
