"""Which groups can teach, and how many make a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

from podium.core.sides import by_side
from podium.core.skip_reasons import (
    ENVIRONMENT_UNAVAILABLE,
    JUDGE_BUDGET,
    JUDGE_UNAVAILABLE,
    TEACHER_UNAVAILABLE,
)
from podium.core.variance import alike
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.step_metrics import is_failed

_UNJUDGEABLE = (JUDGE_BUDGET, JUDGE_UNAVAILABLE, TEACHER_UNAVAILABLE)


def can_teach(group: trajectory_pb2.Group, loss: spec_pb2.LossSpec) -> bool:
    """Whether a judged group says how its attempts differ, on one side of several at least.

    As the trainer will find from rewards; how long attempts are it alone knows. But for the KL:
    a group of equal rewards that trains on the KL alone teaches nothing of the task.
    """
    if loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
        return not all(map(is_failed, group.trajectories))
    if group.skip_reason:
        return False
    if loss.teacher_coefficient:
        return any(map(_was_read, group.trajectories))
    return any(_differs(side, loss) for side in by_side(group))


def _was_read(attempt: trajectory_pb2.Trajectory) -> bool:
    """Whether a teacher has said something of it, which it learns from whatever the others did."""
    said = any(history.tokens.teacher_logprobs for history in attempt.histories)
    return said and not is_failed(attempt)


def _differs(group: trajectory_pb2.Group, loss: spec_pb2.LossSpec) -> bool:
    scored = [
        each
        for each in group.trajectories
        if not is_failed(each) and each.HasField("reward") and math.isfinite(each.reward)
    ]
    if len(scored) < 2:
        return False
    if not alike([_reward(each, loss) for each in scored]):
        return True
    by_turn = (spec_pb2.TURN_ADVANTAGE_RETURN_TO_GO, spec_pb2.TURN_ADVANTAGE_ADDED)
    return loss.turn_advantage in by_turn and _turns_differ(scored, loss)


def are_all_alike(group: trajectory_pb2.Group) -> bool:
    """Whether what befell it befalls every other: judges or teacher answer no more."""
    return group.skip_reason in _UNJUDGEABLE


def is_worth_replacing(group: trajectory_pb2.Group) -> bool:
    """Whether another in its place might teach: not where nobody answers, nor its environment."""
    return not are_all_alike(group) and group.skip_reason != ENVIRONMENT_UNAVAILABLE


def first_step(counts: Sequence[bool], wanted: int, most: int) -> int | None:
    """How many of the groups that are ready make a step; None for not enough.

    Args:
        counts: of each group whether it is one of those that are `wanted`.
        most: groups that a step may have, with those that are not.
    """
    found = 0
    for number, each in enumerate(counts, 1):
        found += each
        if found == wanted or number == most:
            return number
    return None


def steps_in(counts: Sequence[bool], wanted: int, most: int) -> tuple[int, int]:
    """How many steps the groups that are ready make, and how many wanted ones are left over."""
    steps = 0
    while (taken := first_step(counts, wanted, most)) is not None:
        counts = counts[taken:]
        steps += 1
    return steps, sum(counts)


def stand_ins(teach: Sequence[bool], origins: Sequence[int], begin: int, most: int) -> list[int]:
    """For which groups of a step others are drawn: a pure function of what its groups came to.

    Args:
        teach: of each group of the step so far.
        origins: of each group of the step the drawn one that it stands for.
        begin: the first group of the newest round; those before it that cannot teach have
            their stand-ins.
        most: groups that the step may have.

    Returns:
        The origin of each group of the next round; none when the step has what it is to have.
    """
    missing = [origin for origin, ok in zip(origins[begin:], teach[begin:], strict=True) if not ok]
    return missing[: max(0, most - len(origins))]


def _reward(trajectory: trajectory_pb2.Trajectory, loss: spec_pb2.LossSpec) -> float:
    penalized = loss.overlong == spec_pb2.OVERLONG_PENALIZE and _is_overlong(trajectory)
    return trajectory.reward - loss.overlong_penalty * penalized


def _is_overlong(trajectory: trajectory_pb2.Trajectory) -> bool:
    return trajectory.stop_reason == trajectory_pb2.STOP_REASON_CONTEXT_LENGTH or any(
        span.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH
        for history in trajectory.histories
        for span in history.tokens.spans
    )


def _turns_differ(scored: Sequence[trajectory_pb2.Trajectory], loss: spec_pb2.LossSpec) -> bool:
    columns = zip_longest(*(_returns(each, loss) for each in scored))
    return any(not alike([each for each in column if each is not None]) for column in columns)


def _returns(trajectory: trajectory_pb2.Trajectory, loss: spec_pb2.LossSpec) -> list[float]:
    """Of each step what it and those after it earned; as the trainer's, where nobody else acts."""
    weight = trajectory.environment_weight if trajectory.HasField("environment_weight") else 1.0
    found: list[float] = []
    following = _reward(trajectory, loss) - weight * sum(t.reward for t in trajectory.transitions)
    for step in reversed(trajectory.transitions):
        earned = weight * step.reward
        following = earned + (following if not found else loss.turn_discount * following)
        found.append(following)
    return found[::-1]
