"""Groups that the rollout service could not collect for a defect of its own: skipped."""

from __future__ import annotations

from podium.core.errors import DataLossError, InternalError, PodiumError
from podium.core.skip_reasons import NOT_COLLECTED
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2

from podium_controller.domain.timestamps import now_ns, timestamp

INCOMPLETE = "GROUP_INCOMPLETE"
"""Reason of a group that ended without all of its attempts."""


def is_of_one_group(error: PodiumError) -> bool:
    """Whether an error of CollectGroup says nothing about other groups: it broke on this one."""
    return isinstance(error, InternalError) or (
        isinstance(error, DataLossError) and error.reason == INCOMPLETE
    )


def failed_attempts(
    request: rollout_pb.CollectGroupRequest, error: PodiumError
) -> list[trajectory_pb2.Trajectory]:
    """The attempts of a group that could not be collected, each a failure that says why."""
    now = timestamp(now_ns())
    return [
        trajectory_pb2.Trajectory(
            id=f"{request.group_id}/t{attempt}",
            group_id=request.group_id,
            scenario_id=request.scenario.id,
            attempt=attempt,
            stop_reason=trajectory_pb2.STOP_REASON_FAILED,
            failure=trajectory_pb2.Failure(type=NOT_COLLECTED, message=error.message),
            start_time=now,
            end_time=now,
        )
        for attempt in range(request.attempts)
    ]


def was_not_collected(group: trajectory_pb2.Group) -> bool:
    """Whether it is such a group."""
    return bool(group.trajectories) and all(
        each.failure.type == NOT_COLLECTED for each in group.trajectories
    )
