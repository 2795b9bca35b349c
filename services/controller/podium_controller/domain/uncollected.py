"""Groups that could not be collected, for what is true of them alone: skipped."""

from __future__ import annotations

from podium.core.errors import DataLossError, InternalError, PodiumError
from podium.core.skip_reasons import (
    ENVIRONMENT_UNAVAILABLE,
    EPISODES_LOST,
    GROUP_REFUSED,
    NOT_COLLECTED,
)
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2

from podium_controller.domain.errors import DatabaseUnavailableError, LeaseLostError
from podium_controller.domain.timestamps import now_ns, timestamp

INCOMPLETE = "GROUP_INCOMPLETE"
"""Reason of a group that ended without all of its attempts."""

UNCOLLECTED = (GROUP_REFUSED, EPISODES_LOST, ENVIRONMENT_UNAVAILABLE)
"""Skip reasons of groups that nobody is to judge. Another scenario in their place may work."""


def broke(error: PodiumError) -> bool:
    """Whether the rollout service broke on this group: a defect, and not of the group."""
    return isinstance(error, InternalError) or (
        isinstance(error, DataLossError) and error.reason == INCOMPLETE
    )


def refuses(error: PodiumError) -> bool:
    """Whether an error that no waiting mends may be of this group: of its scenario, perhaps.

    Damage is not: a version of the job's may be, which is made again from the one before. Nor is
    what ends the job's run here.
    """
    return not isinstance(error, DataLossError | DatabaseUnavailableError | LeaseLostError)


def failed_attempts(
    request: rollout_pb.CollectGroupRequest, error: PodiumError, kind: str = NOT_COLLECTED
) -> list[trajectory_pb2.Trajectory]:
    """The attempts of a group that could not be collected, each a failure of a type, that says why.

    `kind` is the type.
    """
    now = timestamp(now_ns())
    return [
        trajectory_pb2.Trajectory(
            id=f"{request.group_id}/t{attempt}",
            group_id=request.group_id,
            scenario_id=request.scenario.id,
            attempt=attempt,
            stop_reason=trajectory_pb2.STOP_REASON_FAILED,
            failure=trajectory_pb2.Failure(type=kind, message=error.message),
            start_time=now,
            end_time=now,
        )
        for attempt in range(request.attempts)
    ]


def was_broken_on(group: trajectory_pb2.Group) -> bool:
    """Whether the rollout service broke on it."""
    return bool(group.trajectories) and all(
        each.failure.type == NOT_COLLECTED for each in group.trajectories
    )
