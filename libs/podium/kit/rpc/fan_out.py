"""One call to every pod of a pool: what each says, and who went away meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from podium.core.errors import REQUESTS_DID_NOT_END, WEIGHTS_NOT_EXCHANGED, UnavailableError
from podium.core.tasks import cancel_and_wait
from podium.kit.rpc.errors import rpc_errors

T = TypeVar("T")

# It is there, and has not done what it was told.
_STILL_THERE = frozenset({REQUESTS_DID_NOT_END, WEIGHTS_NOT_EXCHANGED})


@dataclass(frozen=True)
class FanOut(Generic[T]):
    """What came of it, by address."""

    answers: dict[str, T]
    gone: dict[str, UnavailableError]
    """Who went away before it answered: who comes in its place asks for what it lacks."""


async def ask_each(
    channels: Mapping[str, grpc.aio.Channel],
    ask: Callable[[grpc.aio.Channel], Awaitable[T]],
    peer: str,
) -> FanOut[T]:
    """Asks all at once, and waits for all, whatever one of them says.

    Args:
        channels: as `Members.each` gives them.
        ask: one call or several; its gRPC errors become `peer`'s.
        peer: what the pods are to people, as `rpc_errors` takes it.

    Raises:
        PodiumError: what one that is there refused it with; of several, any.
    """

    async def asked(channel: grpc.aio.Channel) -> T:
        with rpc_errors(peer):
            return await ask(channel)

    tasks = {address: asyncio.create_task(asked(channel)) for address, channel in channels.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values())
    finally:
        await cancel_and_wait(*tasks.values())
    answers: dict[str, T] = {}
    gone: dict[str, UnavailableError] = {}
    for address, task in tasks.items():
        error = task.exception()
        if error is None:
            answers[address] = task.result()
        elif isinstance(error, UnavailableError) and _went_away(error, peer):
            gone[address] = error
    refused = (task.exception() for address, task in tasks.items() if address not in gone)
    for error in filter(None, refused):
        raise error
    return FanOut(answers, gone)


def _went_away(error: UnavailableError, peer: str) -> bool:
    """Whether it is the pod itself that is away, not something which the pod lacks."""
    return error.metadata.get("peer", peer) == peer and error.reason not in _STILL_THERE
