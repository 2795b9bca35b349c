"""What a teacher's log-probs do to a batch and to a token's loss, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from podium.core.errors import InvalidArgumentError
from podium.core.skip_reasons import (
    ALL_FAILED,
    FAILED,
    NO_TEACHER,
    NO_TRAINABLE_TRAJECTORY,
    TEACHER_ERROR,
)
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.domain.batch import Batch, build_batch
from podium_trainer.domain.packing import pack
from podium_trainer.learner.objectives import Tokens, token_losses
from support.tiny_policy import VOCABULARY, group, training_spec, trajectory

ALONE = {"teacher_coefficient": 1.0}
BOTH = {"teacher_coefficient": 1.0, "reward_coefficient": 0.5}


def attempt(
    name: str, reward: float | None, teacher: list[float], **changes: Any
) -> trajectory_pb2.Trajectory:
    """Two sampled tokens after two of context."""
    return trajectory(name, reward, [1, 2, 3, 4], [(2, 2)], teacher=teacher, **changes)


def batch_of(*groups: trajectory_pb2.Group, **loss: Any) -> Batch:
    return build_batch(groups, training_spec(loss=loss), VOCABULARY)


def by_hand(
    loss: dict[str, Any], teacher: float, reward_advantage: float = 0.0
) -> tuple[float, float]:
    """Loss and gradient of one token at log p = -1, whose sampler had -1.1."""
    now = torch.tensor([-1.0], requires_grad=True)
    tokens = Tokens(
        logprobs=now,
        sampler=torch.tensor([-1.1]),
        advantages=torch.tensor([reward_advantage]),
        trajectories=torch.tensor([0]),
        teacher=torch.tensor([teacher]),
    )
    total = token_losses(tokens, training_spec(loss=loss).loss).total.sum()
    (gradient,) = torch.autograd.grad(total, now)
    return float(total.detach()), float(gradient)


@pytest.mark.parametrize("alike", [True, False])
def test_groups_train_whatever_their_rewards_are(alike: bool) -> None:
    rewards = [0.5, 0.5] if alike else [0.0, 1.0]
    found = batch_of(
        group("g", *(attempt(f"g/t{i}", r, [-1.0, -2.0]) for i, r in enumerate(rewards))),
        group("one", attempt("one/t0", None, [-1.0, -2.0])),
        **ALONE,
    )
    assert found.skipped_groups == {}
    assert [item.advantage for item in found.samples] == [0.0, 0.0, 0.0]
    # Said of groups that train on the KL to the base alone; a teacher's are none of these.
    assert found.zero_variance_groups == 0


def test_rewards_count_beside_the_teacher_by_their_coefficient() -> None:
    attempts = [attempt(f"g/t{i}", float(i), [-1.0, -2.0]) for i in range(2)]
    found = batch_of(group("g", *attempts), **BOTH)
    assert [item.advantage for item in found.samples] == pytest.approx([-0.5, 0.5], abs=1e-5)
    turns = batch_of(group("g", *attempts), **BOTH, turn_advantage="TURN_ADVANTAGE_RETURN_TO_GO")
    assert [float(np.mean(item.advantage)) for item in turns.samples] == pytest.approx(
        [-0.5, 0.5], abs=1e-5
    )


def test_an_attempt_that_the_teacher_could_not_read_leaves_with_a_reason_of_its_own() -> None:
    failed = attempt("g/t2", None, [-1.0, -1.0])
    failed.stop_reason = trajectory_pb2.STOP_REASON_FAILED
    found = batch_of(
        group("g", attempt("g/t0", 1, [-1.0, -2.0]), attempt("g/t1", 0, []), failed), **ALONE
    )
    assert found.skipped_trajectories == {"g/t1": NO_TEACHER, "g/t2": FAILED}
    assert found.trajectories == 1
    none = batch_of(group("g", attempt("g/t0", 1, [])), group("f", failed), **ALONE)
    assert none.skipped_groups == {"g": NO_TRAINABLE_TRAJECTORY, "f": ALL_FAILED}


def test_a_group_without_a_teacher_stays_out_with_its_reason() -> None:
    untaught = group("g", attempt("g/t0", 1, [-1.0, -2.0]))
    untaught.skip_reason = TEACHER_ERROR
    assert batch_of(untaught, **ALONE).skipped_groups == {"g": TEACHER_ERROR}


@pytest.mark.parametrize("teacher", [[-1.0], [-1.0] * 3, [0.5, -1.0]])
def test_log_probs_that_are_none_are_refused(teacher: list[float]) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        batch_of(group("g", attempt("g/t0", 1, teacher)), **ALONE)
    assert raised.value.reason == "INCONSISTENT_TOKEN_RECORD"
    assert raised.value.violations[0].field.endswith("tokens.teacher_logprobs")


def test_a_teachers_words_go_with_their_tokens_into_the_rows() -> None:
    one = trajectory("g/t0", 1, [1, 2, 5, 6], [(2, 2)], teacher=[-0.25, -0.5])
    two = trajectory("g/t1", 0, [1, 2, 3, 4], [(2, 2)], teacher=[-0.75, math.nan])
    batch = batch_of(group("g", one, two), **ALONE)
    (row,) = pack(batch.samples, 64)
    said = {
        int(target): float(value) for target, value in zip(row.targets, row.teacher, strict=True)
    }
    assert {k: said[k] for k in (5, 6, 3)} == {5: -0.25, 6: -0.5, 3: -0.75}
    assert math.isnan(said[4])


def test_a_tokens_advantage_is_the_teachers_log_prob_less_the_policys_own() -> None:
    ratio = math.exp(0.1)
    # A = -0.4 - -1 = 0.6, and the ratio to the sampler weighs it: -r A, gradient the same.
    assert by_hand(ALONE, -0.4) == pytest.approx((-ratio * 0.6, -ratio * 0.6), rel=1e-5)
    reinforce = {**ALONE, "objective": "OBJECTIVE_REINFORCE"}
    assert by_hand(reinforce, -0.4) == pytest.approx((0.6, -0.6), rel=1e-5)
    both = {"teacher_coefficient": 0.5, "reward_coefficient": 1.0}
    assert by_hand(both, -0.4, 2.0)[1] == pytest.approx(-ratio * 2.3, rel=1e-5)


@pytest.mark.parametrize(
    ("teacher", "bounded"), [(-100.0, -20.0), (-math.inf, -20.0), (math.nan, 0.0)]
)
def test_what_the_teacher_rules_out_is_bounded_and_what_it_was_not_asked_is_nothing(
    teacher: float, bounded: float
) -> None:
    reinforce = {**ALONE, "objective": "OBJECTIVE_REINFORCE"}
    assert by_hand(reinforce, teacher)[1] == pytest.approx(-bounded)


def test_without_a_coefficient_a_teacher_has_no_say() -> None:
    assert by_hand({}, -0.4, 1.0) == by_hand({}, math.nan, 1.0)


def test_supervised_samples_need_no_teacher() -> None:
    loss = {"objective": spec_pb2.OBJECTIVE_SUPERVISED}
    assert batch_of(group("g", attempt("g/t0", None, [])), **loss).trajectories == 1
