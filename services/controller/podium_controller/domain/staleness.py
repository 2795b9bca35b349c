"""How far behind the weights that train a group the weights that sampled it are."""

from __future__ import annotations

from podium.types.v1 import trajectory_pb2


def oldest_version(group: trajectory_pb2.Group, job_id: str) -> int | None:
    """The least weights version of any sampled span; None when nothing was sampled.

    A span of another policy counts as older than every version: its
    log-probs say nothing about this job's weights.
    """
    versions = [
        span.weights_version if span.policy == job_id else -1
        for trajectory in group.trajectories
        for history in trajectory.histories
        for span in history.tokens.spans
    ]
    return min(versions, default=None)


def staleness(group: trajectory_pb2.Group, job_id: str, step: int) -> int:
    """Versions between the oldest sampled span and the weights that `step` starts from.

    Step s starts from version s - 1, so a group that was sampled strictly
    on-policy has 0, as has one in which nothing was sampled.
    """
    oldest = oldest_version(group, job_id)
    return 0 if oldest is None else step - 1 - oldest
