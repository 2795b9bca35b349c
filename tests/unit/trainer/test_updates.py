"""What a step's later updates go by: the policy before the step, and not where it has moved to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from podium.types.v1 import spec_pb2
from podium_trainer.learner.objectives import BatchValues, TokenLosses, Tokens, token_losses
from podium_trainer.learner.statistics import Statistics
from support.tiny_policy import training_spec

NOW = [-1.0, -0.5, -2.0, -0.7]
START = [-1.2, -0.6, -1.5, -0.9]
SAMPLER = [-1.3, -0.4, -1.6, -0.8]


def loss_of(**changes: Any) -> spec_pb2.LossSpec:
    return training_spec(loss=changes).loss


def tokens(start: list[float] | None = START) -> Tokens:
    return Tokens(
        logprobs=torch.tensor(NOW, requires_grad=True),
        sampler=torch.tensor(SAMPLER),
        advantages=torch.tensor([1.0, -1.0, 0.5, 2.0]),
        trajectories=torch.tensor([0, 0, 1, 1]),
        start=None if start is None else torch.tensor(start),
    )


def off(one: list[float], two: list[float]) -> list[float]:
    return [a - b for a, b in zip(one, two, strict=True)]


def logs(values: torch.Tensor) -> list[float]:
    return values.detach().log().tolist()


@pytest.mark.parametrize(("old", "expected"), [("SAMPLER", SAMPLER), ("TRAINER", START)])
def test_the_ratio_is_to_the_same_old_policy_in_every_update(
    old: str, expected: list[float]
) -> None:
    losses = token_losses(tokens(), loss_of(old_policy=f"OLD_POLICY_{old}", epsilon_high=0.1))
    assert logs(losses.ratio) == pytest.approx(off(NOW, expected), abs=1e-6)
    # Two ratios are 1.22 and more: the clip means something.
    assert losses.clipped is not None
    assert losses.clipped.any()
    # What is told of the two programs is of before the step.
    assert losses.mismatch.tolist() == pytest.approx(off(START, SAMPLER), abs=1e-6)
    assert losses.moved is not None
    assert losses.moved.tolist() == pytest.approx(off(NOW, START), abs=1e-6)


def test_gspo_has_the_mean_ratio_to_the_policy_before_the_step() -> None:
    spec = loss_of(objective="OBJECTIVE_GSPO", old_policy="OLD_POLICY_TRAINER")
    means = [(0.2 + 0.1) / 2] * 2 + [(-0.5 + 0.2) / 2] * 2
    assert logs(token_losses(tokens(), spec).ratio) == pytest.approx(means, abs=1e-6)


def test_the_correction_for_the_sampler_does_not_grow_with_the_updates() -> None:
    spec = loss_of(old_policy="OLD_POLICY_TRAINER", importance_cap=1.05)
    plain = token_losses(tokens(), loss_of(old_policy="OLD_POLICY_TRAINER"))
    factors = (token_losses(tokens(), spec).policy / plain.policy).tolist()
    assert factors == pytest.approx(
        [min(1.05, math.exp(value)) for value in off(START, SAMPLER)], abs=1e-5
    )


def test_reinforce_has_no_ratio_and_is_corrected_for_all_that_moved() -> None:
    spec = loss_of(objective="OBJECTIVE_REINFORCE", importance_cap=1.1)
    plain = token_losses(tokens(), loss_of(objective="OBJECTIVE_REINFORCE"))
    factors = (token_losses(tokens(), spec).policy / plain.policy).tolist()
    assert factors == pytest.approx(
        [min(1.1, math.exp(value)) for value in off(NOW, SAMPLER)], abs=1e-5
    )


def test_the_same_trajectories_leave_the_loss_in_every_update() -> None:
    """By now both means are below 0.9; before the step the second's was not."""
    spec = loss_of(sequence_ratio_min=0.9)
    given = replace(tokens(), sampler=torch.tensor([-0.5, -0.2, -1.6, -0.8]))
    assert token_losses(given, spec).kept.tolist() == [False, False, True, True]
    later = replace(given, logprobs=torch.tensor([-1.0, -0.5, -4.0, -4.0], requires_grad=True))
    assert token_losses(later, spec).kept.tolist() == [False, False, True, True]


def test_advantages_of_teacher_and_kl_are_those_of_before_the_step() -> None:
    reference = torch.tensor([-1.1, -0.9, -1.4, -1.0])
    spec = loss_of(
        objective="OBJECTIVE_REINFORCE",
        kl_coefficient=0.5,
        kl_placement="KL_PLACEMENT_ADVANTAGE",
        kl_estimator="KL_ESTIMATOR_K1",
        teacher_coefficient=2.0,
        reward_coefficient=1.0,
    )
    given = replace(tokens(), reference=reference, teacher=torch.tensor([-1.0, -1.0, -1.0, -1.0]))
    losses = token_losses(given, spec, BatchValues(kl_mean=0.1))
    start = torch.tensor(START)
    advantages = given.advantages + 2 * (-1 - start) - 0.5 * (start - reference - 0.1)
    torch.testing.assert_close(losses.policy, -advantages * given.logprobs)
    # What is told of the KL is of now.
    assert losses.kl is not None
    torch.testing.assert_close(losses.kl, given.logprobs - reference)


def test_a_token_without_the_samplers_logprob_is_compared_with_the_start() -> None:
    given = replace(tokens(), sampler=torch.full((4,), math.nan))
    losses = token_losses(given, loss_of())
    assert logs(losses.ratio) == pytest.approx(off(NOW, START), abs=1e-6)
    assert losses.mismatch.tolist() == [0, 0, 0, 0]


def counted(losses: TokenLosses) -> dict[str, float]:
    statistics = Statistics()
    with torch.no_grad():
        statistics.add(losses, torch.ones(4), torch.ones(4), torch.full((4,), 0.25))
    return statistics.means()


def test_only_steps_of_several_updates_tell_of_where_they_moved() -> None:
    told = counted(token_losses(tokens(), loss_of()))
    moved = off(NOW, START)
    assert told["kl_step"] == pytest.approx(sum(math.exp(d) - 1 - d for d in moved) / 4, abs=1e-6)
    ratios = [math.exp(value) for value in off(NOW, SAMPLER)]
    assert told["policy_ratio_mean"] == pytest.approx(sum(ratios) / 4, abs=1e-6)
    alone = counted(token_losses(tokens(start=None), loss_of()))
    assert alone.keys() == told.keys() - {"kl_step", "policy_ratio_mean"}
    sft = counted(token_losses(tokens(start=None), loss_of(objective="OBJECTIVE_SUPERVISED")))
    assert "kl_step" not in sft
