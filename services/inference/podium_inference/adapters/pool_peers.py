"""The pool's other pods: what they captured, and what they serve or are to serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import grpc
from podium.core.errors import DataLossError, NotFoundError, PodiumError, UnimplementedError
from podium.core.tasks import run_all
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import rpc_errors
from podium.kit.rpc.fan_out import ask_each
from podium.kit.rpc.members import Members

from podium_inference.domain import metrics
from podium_inference.domain.captures import Captures
from podium_inference.domain.holders import Holders
from podium_inference.domain.pool import PolicyPool

logger = logging.getLogger(__name__)

T = TypeVar("T")
_PEER = "inference"
_CALL_SECONDS = 30.0
# An answer waits for it, once a rollout and pod.
_NOTE_SECONDS = 2.0
_LOAD_SECONDS = 300.0
_MOST_POLICIES = 1000


@dataclass(frozen=True)
class Captured:
    """What one of them has captured under a key, and knows of the others."""

    calls: list[pb.CapturedCall]
    """Oldest first."""
    process: str
    """Empty of a peer that is too old to say."""
    holders: frozenset[str]


class PoolPeers:
    """Asks them; there are none where the pool has no name."""

    def __init__(self, members: Members | None, own_host: str, holders: Holders) -> None:
        """`own_host` is this pod's own address, without a port."""
        self._members = members
        self._own = own_host
        self._holders = holders
        self._announcing: dict[str, asyncio.Task[None]] = {}

    def announce(self, key: str) -> Awaitable[None]:
        """Begins to tell each that this process has calls under a key; they are told once.

        Awaited, it is over: one that does not answer is left out.
        """
        task = self._announcing.get(key)
        if task is None:
            task = asyncio.create_task(self._announce(key))
            self._announcing[key] = task
            task.add_done_callback(lambda _: self._announcing.pop(key, None))
        # Whose answer is broken off does not end it for others.
        return asyncio.shield(task)

    async def captured(self, key: str) -> list[Captured]:
        """What each has captured under a key.

        Raises:
            DataLossError: CAPTURE_DROPPED, by one of them.
            UnavailableError: one does not answer.
        """

        async def take(stub: pb_grpc.InferenceServiceAsyncStub) -> Captured:
            request = pb.TakeCaptureRequest(key=key, here_only=True)
            try:
                with rpc_errors(_PEER):
                    stream = stub.TakeCapture(request, timeout=_CALL_SECONDS)
                    calls = [response.call async for response in stream]
            except NotFoundError:
                calls = []
            # Afterwards: a process that ends in between and comes back is another one here.
            try:
                with rpc_errors(_PEER):
                    asked = pb.NoteCaptureRequest(key=key)
                    known = await stub.NoteCapture(asked, timeout=_CALL_SECONDS)
            except UnimplementedError:
                return Captured(calls, "", frozenset())
            return Captured(calls, known.process, frozenset(known.holders))

        return await self._each(take)

    async def policies(self) -> list[pb.LoadedPolicy]:
        """What they serve, each policy once; without those that do not answer.

        Raises:
            UnavailableError: nobody says who they are.
        """

        async def listed(stub: pb_grpc.InferenceServiceAsyncStub) -> list[pb.LoadedPolicy]:
            request = pb.ListPoliciesRequest(page_size=_MOST_POLICIES)
            try:
                with rpc_errors(_PEER):
                    response = await stub.ListPolicies(request, timeout=_CALL_SECONDS)
            except PodiumError as error:
                logger.info("a peer does not say what it serves", extra={"error": str(error)})
                return []
            return list(response.policies)

        found = {
            (policy.job, policy.version): policy
            for policies in await self._each(listed)
            for policy in policies
            if policy.job
        }
        return [found[key] for key in sorted(found)]

    async def load(self, request: pb.LoadPolicyRequest) -> list[pb.LoadPolicyResponse]:
        """Has each serve the version; without those that went away, which fetch it when asked.

        All are waited for, whatever one of them says.

        Raises:
            UnavailableError: nobody says who they are.
            PodiumError: what one refused it with.
        """
        order = pb.LoadPolicyRequest()
        order.CopyFrom(request)
        order.whole_pool = False

        asked = await ask_each(
            await self._others(),
            lambda channel: _stub(channel).LoadPolicy(order, timeout=_LOAD_SECONDS),
            _PEER,
        )
        return list(asked.answers.values())

    async def _announce(self, key: str) -> None:
        own = self._holders.process
        if self._members is None or own in self._holders.of(key):
            return

        async def tell(stub: pb_grpc.InferenceServiceAsyncStub) -> None:
            request = pb.NoteCaptureRequest(key=key, holder=own)
            try:
                with rpc_errors(_PEER):
                    await stub.NoteCapture(request, timeout=_NOTE_SECONDS)
            except PodiumError as error:
                logger.info("a peer was not told of a capture", extra={"error": error.message})

        try:
            await self._each(tell)
        except PodiumError as error:
            logger.warning("cannot tell the peers", extra={"error": error.message})
            return
        self._holders.note(key, own)

    async def _each(
        self, ask: Callable[[pb_grpc.InferenceServiceAsyncStub], Awaitable[T]]
    ) -> list[T]:
        channels = await self._others()
        return await run_all([ask(_stub(channel)) for channel in channels.values()])

    async def _others(self) -> dict[str, grpc.aio.Channel]:
        """A channel to each, by address."""
        channels = await self._members.each() if self._members is not None else {}
        return {
            address: channel
            for address, channel in channels.items()
            if address.rpartition(":")[0].strip("[]") != self._own
        }


def _stub(channel: grpc.aio.Channel) -> pb_grpc.InferenceServiceAsyncStub:
    return pb_grpc.InferenceServiceStub(channel)


async def take_everywhere(
    captures: Captures, pool_peers: PoolPeers, holders: Holders, key: str
) -> list[pb.CapturedCall]:
    """The calls of a key, of all pods, oldest first.

    Raises:
        NotFoundError: NOTHING_CAPTURED, by none of them.
        DataLossError: CAPTURE_DROPPED, by one of them; CAPTURE_LOST, with one that is gone.
        UnavailableError: one does not answer.
    """
    try:
        here = [pb.CapturedCall.FromString(call) for call in captures.take(key)]
        nothing = None
    except NotFoundError as error:
        here, nothing = [], error
    parts = await pool_peers.captured(key)
    gone = holders.of(key).union(*(part.holders for part in parts))
    gone -= {holders.process, *(part.process for part in parts)}
    if gone:
        metrics.LOST_CAPTURES.inc()
        raise DataLossError(
            f"{len(gone)} of the pool's processes that answered calls under this key are gone,"
            " and what they had captured with them; sample them again",
            reason="CAPTURE_LOST",
        )
    calls = [*here, *(call for part in parts for call in part.calls)]
    if nothing is not None and not calls:
        raise nothing
    return sorted(calls, key=lambda call: call.end_time.ToNanoseconds())


async def join(pool: PolicyPool, pool_peers: PoolPeers, seconds: float) -> None:
    """Serves what the peers serve; what cannot be had is fetched when it is asked for.

    Args:
        seconds: how long this may take altogether.
    """
    try:
        async with asyncio.timeout(seconds):
            await _join(pool, pool_peers)
    except TimeoutError:
        logger.warning("could not serve in time all that the peers serve")


async def _join(pool: PolicyPool, pool_peers: PoolPeers) -> None:
    try:
        policies = await pool_peers.policies()
    except PodiumError as error:
        logger.warning("cannot ask the peers", extra={"error": error.message})
        return
    for policy in policies:
        try:
            await pool.want(policy.job, policy.version)
        except PodiumError as error:
            logger.warning(
                "cannot serve what a peer serves",
                extra={"policy": policy.model_name, "error": error.message},
            )
