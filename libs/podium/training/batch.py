"""Groups of an agent's own attempts as the groups that a job trains on."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import SupportsFloat, cast

from google.protobuf.timestamp_pb2 import Timestamp

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.outside import clean, struct_of
from podium.training.histories import Joined
from podium.training.trajectories import Trajectory, TrajectoryException, TrajectoryGroup
from podium.types.v1 import trajectory_pb2 as pb

logger = logging.getLogger(__name__)

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
            joined = trajectory.joined(policy)
            _warn(joined, scenario)
            reasons.update(joined.untrainable)
            if joined.undecided:
                reasons.add(_UNDECIDED)
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


_UNDECIDED = (
    "of several choices (n > 1) nothing tells which one the agent went on with; put it into"
    " messages_and_choices"
)


def _warn(joined: Joined, scenario: str) -> None:
    """Tells, once an attempt, of what it costs silently."""
    if joined.splits:
        sampled = sum(len(history.tokens.logprobs) for history in joined.histories)
        whole = sum(len(history.tokens.token_ids) for history in joined.histories)
        logger.warning(
            "an attempt at %s: %d of its calls go on with what was said but not with the tokens"
            " that were sampled, and begin histories anew: %d histories hold %d tokens, of which"
            " %d were sampled. The model's chat template writes earlier turns in another way, or"
            " the agent does",
            scenario,
            joined.splits,
            len(joined.histories),
            whole,
            sampled,
        )
    if joined.undecided:
        logger.warning(
            "an attempt at %s: in %d calls nothing of what was sampled trains: %s",
            scenario,
            joined.undecided,
            _UNDECIDED,
        )


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
    if joined.unused:
        made.metrics["unused_answers"] = joined.unused
    if joined.undecided:
        made.metrics["untold_choices"] = joined.undecided
    if joined.splits:
        made.metrics["history_splits"] = joined.splits
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
