"""Scenarios before a judge service: some at once, and one patience for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from podium.core.errors import InvalidArgumentError, PodiumError, UnavailableError
from podium.judge.v1 import judge_service_pb2 as pb
from podium.kit.rpc import retry_unavailable
from podium.types.v1 import trajectory_pb2

Ask = Callable[[trajectory_pb2.Group], Awaitable[pb.ScoreGroupResponse]]
"""Has the judge service score a group."""

PATIENCE_SECONDS = 120.0


async def ask_about(
    ask: Ask,
    groups: Mapping[str, trajectory_pb2.Group],
    *,
    concurrency: int,
    patience_seconds: float,
) -> dict[str, pb.ScoreGroupResponse | PodiumError]:
    """What was answered of each group, by the same names, or why nothing was.

    Args:
        concurrency: groups at once.
        patience_seconds: how long a judge that is away is asked again. Once one group has waited
            so long, those after it are asked once, until one is answered.

    Raises:
        InvalidArgumentError: the judge service takes none of the groups.
    """
    slots = asyncio.Semaphore(concurrency)
    patience = patience_seconds

    async def one(group: trajectory_pb2.Group) -> pb.ScoreGroupResponse | PodiumError:
        nonlocal patience
        async with slots:
            try:
                found = await retry_unavailable(lambda: ask(group), timeout_s=patience)
            except PodiumError as error:
                if isinstance(error, UnavailableError):
                    patience = 0.0
                return error
        patience = patience_seconds
        return found

    found = await asyncio.gather(*map(one, groups.values()))
    refused = [each for each in found if isinstance(each, InvalidArgumentError)]
    if refused and len(refused) == len(found):
        raise refused[0]
    return dict(zip(groups, found, strict=True))
