"""Which groups can teach: as the trainer finds; and which of them make a step."""

from __future__ import annotations

import random
from typing import Any

import pytest
from podium.core import skip_reasons
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.trainable_groups import (
    can_teach,
    first_step,
    is_worth_replacing,
    stand_ins,
    steps_in,
)
from podium_trainer.domain.batch import build_batch
from support.tiny_policy import VOCABULARY, group, training_spec, trajectory

LOSSES: list[dict[str, Any]] = [
    {},
    {"overlong": "OVERLONG_PENALIZE", "overlong_penalty": 0.5},
    {"turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO"},
    {"turn_advantage": "TURN_ADVANTAGE_ADDED", "turn_weight": 1.0},
    {"objective": "OBJECTIVE_SUPERVISED"},
]


def drawn(draw: random.Random) -> trajectory_pb2.Group:
    """Any group: of a few rewards, sides, ends and steps."""
    attempts = []
    for number in range(draw.randrange(1, 5)):
        reward = draw.choice((None, 0.5, 0.5, 0.5, 0.5 + 1e-9, 1.0, float("nan")))
        each = trajectory(f"g/t{number}", reward, [1, 2, 3, 4, 5, 6], [(2, 2), (5, 1)])
        for _ in range(2):
            each.transitions.add(reward=draw.choice((0.0, 0.0, 0.0, 0.25)))
        if draw.random() < 0.2:
            each.stop_reason = trajectory_pb2.STOP_REASON_FAILED
        elif draw.random() < 0.2:
            each.stop_reason = trajectory_pb2.STOP_REASON_CONTEXT_LENGTH
        each.side = draw.choice(("", "", "", "other"))
        attempts.append(each)
    made = group("g", *attempts)
    if draw.random() < 0.1:
        made.skip_reason = skip_reasons.JUDGE_FAILED
    return made


@pytest.mark.parametrize("loss", LOSSES)
def test_what_can_teach_is_what_the_trainer_does_not_skip(loss: dict[str, Any]) -> None:
    draw, found = random.Random(7), set()
    training = training_spec(loss=loss)
    supervised = training.loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
    for _ in range(200):
        made = drawn(draw)
        failed = all(t.stop_reason == trajectory_pb2.STOP_REASON_FAILED for t in made.trajectories)
        if supervised and failed:
            continue
        batch = build_batch([made], training, VOCABULARY)
        assert can_teach(made, training.loss) == (not batch.skipped_groups), made
        found.add(not batch.skipped_groups)
    assert found == ({True} if supervised else {True, False})


def test_attempts_that_all_failed_teach_nobody() -> None:
    failed = trajectory("g/t0", None, [1, 2, 3], [(2, 1)])
    failed.stop_reason = trajectory_pb2.STOP_REASON_FAILED
    for objective in ("OBJECTIVE_CLIPPED", "OBJECTIVE_SUPERVISED"):
        loss = training_spec(loss={"objective": objective}).loss
        assert not can_teach(group("g", failed), loss)


@pytest.mark.parametrize(
    ("reason", "worth"),
    [("", True), (skip_reasons.JUDGE_FAILED, True), (skip_reasons.JUDGE_BUDGET, False)],
)
def test_nothing_is_drawn_for_what_judges_will_not_judge(reason: str, worth: bool) -> None:
    assert is_worth_replacing(trajectory_pb2.Group(skip_reason=reason)) == worth


def test_a_step_has_what_it_asks_for_or_all_that_it_may_attempt() -> None:
    yes, no = True, False
    assert first_step([yes, no], 2, 4) is None
    assert first_step([yes, no, yes, yes], 2, 4) == 3
    assert first_step([no, no, yes, no, yes], 2, 4) == 4
    assert steps_in([yes, yes, no, yes, no, no, yes], 2, 4) == (2, 1)


def test_each_group_that_cannot_teach_has_one_stand_in_within_the_bound() -> None:
    teach, origins = [True, False, False, True], [0, 1, 2, 3]
    assert stand_ins(teach, origins, 0, 8) == [1, 2]
    # Of the newest round alone: the others have theirs.
    assert stand_ins([*teach, False, True], [*origins, 1, 2], 4, 8) == [1]
    assert stand_ins([*teach, False, True], [*origins, 1, 2], 4, 6) == []
    assert stand_ins([True] * 4, origins, 0, 8) == []


def test_what_a_teacher_has_read_teaches_without_variance() -> None:
    loss = training_spec(loss={"teacher_coefficient": 1}).loss
    made = group("g", trajectory("g/t0", 1.0, [1, 2, 3], [(2, 1)]))
    assert not can_teach(made, loss)
    made.trajectories[0].histories[0].tokens.teacher_logprobs.append(-1)
    assert can_teach(made, loss)
    made.skip_reason = skip_reasons.TEACHER_ERROR
    assert not can_teach(made, loss)
