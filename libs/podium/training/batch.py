"""Groups of an agent's own attempts as the groups that a job trains on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import SupportsFloat, cast

from google.protobuf.timestamp_pb2 import Timestamp

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.outside import clean, struct_of
from podium.training.histories import Joined, join
from podium.training.trajectories import Trajectory, TrajectoryException, TrajectoryGroup
from podium.types.v1 import trajectory_pb2 as pb

_TRACEBACK_BYTES = 16 * 1024
_NEW = "new"
"""Stands for the ids that the controller gives."""


def batch_of(groups: Iterable[TrajectoryGroup], policy: str) -> list[pb.Group]:
    """The groups, with exact tokens from the captured calls; exceptions are failed attempts.

    A scenario's id is the group's `metadata["scenario_id"]`, else its place.

    Raises:
        InvalidArgumentError: there is no group, or a reward is not finite.
        FailedPreconditionError: NOTHING_CAPTURED, nothing of it can train.
    """
    violations: list[Violation] = []
    found: list[pb.Group] = []
    reasons: set[str] = set()
    for index, group in enumerate(groups):
        scenario = clean(str(group.metadata.get("scenario_id") or f"group-{index}"))
        made = pb.Group(id=_NEW, scenario=pb.Scenario(id=scenario))
        for number, trajectory in enumerate(group.trajectories):
            if not _is_finite(trajectory.reward):
                path = f"groups[{index}].trajectories[{number}].reward"
                violations.append(Violation(path, f"got {trajectory.reward}; must be finite"))
                continue
            joined = join(trajectory.calls, policy)
            reasons.update(joined.untrainable)
            made.trajectories.append(_trajectory(trajectory, joined))
        made.trajectories.extend(_failed(error) for error in group.exceptions)
        if made.trajectories:
            found.append(made)
    if violations:
        raise InvalidArgumentError(violations=violations)
    if not found:
        raise InvalidArgumentError(
            violations=[Violation("groups", "got no attempts; there must be a group with some")]
        )
    _check_captured(found, policy, reasons)
    return found


def _check_captured(groups: Sequence[pb.Group], policy: str, reasons: Iterable[str]) -> None:
    attempts = [each for group in groups for each in group.trajectories]
    if any(history.tokens.spans for each in attempts for history in each.histories):
        return
    if all(each.HasField("failure") for each in attempts):
        return
    why = ", ".join(sorted(reasons))
    if why:
        text = f"all calls of {policy} were sampled in a way that must not train: {why}"
    else:
        text = (
            f"no call of {policy} was captured. Make rollouts as coroutines in TrajectoryGroup(...)"
            " or in `async with model.rollout()`, with model.openai_client(), or with"
            " model.inference_base_url and model.inference_api_key read inside the rollout"
        )
    raise FailedPreconditionError(text, reason="NOTHING_CAPTURED")


def _trajectory(trajectory: Trajectory, joined: Joined) -> pb.Trajectory:
    made = pb.Trajectory(
        id=_NEW,
        group_id=_NEW,
        scenario_id=_NEW,
        histories=joined.histories,
        environment_reward=trajectory.reward,
        stop_reason=pb.STOP_REASON_TERMINATED,
        metrics={
            clean(name): float(value)
            for name, value in trajectory.metrics.items()
            if isinstance(value, Real) and _is_finite(cast(SupportsFloat, value))
        },
        start_time=_timestamp(trajectory.start_time.timestamp()),
    )
    if trajectory.end_time is not None:
        made.end_time.CopyFrom(_timestamp(trajectory.end_time.timestamp()))
    if joined.untrainable:
        made.metrics["untrainable_calls"] = len(joined.untrainable)
    if joined.aborted:
        made.metrics["aborted_calls"] = joined.aborted
    noted = {"metadata": dict(trajectory.metadata), "logs": list(trajectory.logs)}
    made.info.CopyFrom(struct_of(noted))
    return made


def _failed(error: TrajectoryException) -> pb.Trajectory:
    text = clean(error.traceback).encode()[-_TRACEBACK_BYTES:].decode(errors="ignore")
    return pb.Trajectory(
        id=_NEW,
        group_id=_NEW,
        scenario_id=_NEW,
        stop_reason=pb.STOP_REASON_FAILED,
        failure=pb.Failure(type=clean(error.type), message=clean(error.message), traceback=text),
    )


def _is_finite(value: SupportsFloat) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _timestamp(seconds: float) -> Timestamp:
    made = Timestamp()
    made.FromNanoseconds(int(seconds * 1e9))
    return made
