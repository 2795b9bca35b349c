"""Runs the rollouts of many groups at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from podium.core.tasks import run_all
from podium.training import progress
from podium.training.trajectories import Trajectory, TrajectoryGroup

AfterEach = Callable[[TrajectoryGroup], Awaitable[TrajectoryGroup | list[TrajectoryGroup] | None]]


async def gather_trajectory_groups(
    groups: Iterable[Awaitable[TrajectoryGroup]],
    *,
    pbar_desc: str | None = "gather",
    max_exceptions: int | float = 0,
    after_each: AfterEach | None = None,
) -> list[TrajectoryGroup]:
    """Every group, its attempts made, in the order in which they were given.

    Args:
        groups: one a scenario; a `TrajectoryGroup` of coroutines runs them side by side.
        pbar_desc: what the progress bar says; None for no bar.
        max_exceptions: how many rollouts may raise; between 0 and 1 a share of
            all of them. The first beyond it is raised and ends the others.
            Those that are allowed are in the groups' `exceptions`.
        after_each: is given each group as soon as it is whole, e.g. to score
            it, and returns what takes its place: a group, several, or None.

    Returns:
        The groups, as many as were given unless `after_each` made more or fewer of one.

    Raises:
        Exception: whatever the first rollout beyond `max_exceptions` raised, or `after_each`.
        TypeError: as a rollout's, when it returned something else than a `Trajectory`.
    """
    given = list(groups)
    known = sum(group.pending for group in given if isinstance(group, TrajectoryGroup))

    async def one(group: Awaitable[TrajectoryGroup]) -> list[TrajectoryGroup]:
        whole = await group
        if after_each is None:
            return [whole]
        result = await after_each(whole)
        if result is None:
            return []
        return result if isinstance(result, list) else [result]

    with progress.entered(progress.FailureBudget(max_exceptions, known), pbar_desc):
        try:
            found = await run_all([one(group) for group in given])
        finally:
            for group in given:
                if isinstance(group, TrajectoryGroup):
                    group.discard()
    return [group for part in found for group in part]


async def gather_trajectories(
    trajectories: Iterable[Awaitable[Trajectory]],
    *,
    pbar_desc: str | None = "gather",
    max_exceptions: int | float = 0,
) -> list[Trajectory]:
    """The attempts that ended well, in the order in which they were given.

    Args:
        trajectories: coroutines, one an attempt; they run side by side.
        pbar_desc: what the progress bar says; None for no bar.
        max_exceptions: how many may raise, as of `gather_trajectory_groups`; those that do are
            left out.

    Raises:
        Exception: whatever the first rollout beyond `max_exceptions` raised.
        TypeError: as a rollout's, when it returned something else than a `Trajectory`.
    """
    (group,) = await gather_trajectory_groups(
        [TrajectoryGroup(trajectories)], pbar_desc=pbar_desc, max_exceptions=max_exceptions
    )
    return group.trajectories
