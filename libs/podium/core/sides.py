"""Groups of episodes that a policy plays from several sides."""

from __future__ import annotations

from podium.types.v1 import trajectory_pb2


def by_side(group: trajectory_pb2.Group) -> list[trajectory_pb2.Group]:
    """One group a side, the main one first; the group itself when it has one side.

    Sides differ in what they may reach, so an attempt is compared only with attempts of its
    own side. A further side's group is called `{group}/{side}` and lacks `judgements`.
    """
    sides = sorted({trajectory.side for trajectory in group.trajectories})
    if len(sides) <= 1:
        return [group]
    found = []
    for side in sides:
        part = trajectory_pb2.Group(
            id=f"{group.id}/{side}" if side else group.id,
            job_id=group.job_id,
            step=group.step,
            scenario=group.scenario,
            skip_reason=group.skip_reason,
        )
        part.trajectories.extend(each for each in group.trajectories if each.side == side)
        found.append(part)
    return found
