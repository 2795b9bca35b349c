"""An episode over `podium.environment.v1`, held over connections that break."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TypeVar

import grpc
from podium.core.backoff import Backoff
from podium.core.errors import (
    InternalError,
    NotFoundError,
    PodiumError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.core.time_limits import queued
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environment.v1 import environment_service_pb2_grpc as pb_grpc
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_rollout.adapters.credits import Credits
from podium_rollout.domain import metrics
from podium_rollout.domain.ports import EnvironmentRaisedError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_ANSWER_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_END_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class RemoteSession:
    """One session. `open` comes first, `close` last, whatever happened between.

    All raise EnvironmentRaisedError when the environment's own code raised,
    and PodiumError for what else the call failed with. Any wait may be cut:
    the next request then ends at the server what still runs there.
    """

    def __init__(
        self,
        stub: pb_grpc.EnvironmentServiceAsyncStub,
        spec: spec_pb2.EnvironmentSpec,
        episode: spec_pb2.EpisodeSpec,
        *,
        label: str,
        credits_: Credits,
        resume_seconds: float,
    ) -> None:
        """`label` begins the session's id, for the server's log."""
        self._stub = stub
        self._peer = f"environment {spec.name!r} at {spec.address}"
        self._id = f"{label}/{uuid.uuid4().hex}"
        self._config = spec.config
        self._wait_seconds = episode.session_wait_seconds
        self._busy_seconds = episode.timeout_seconds + 2 * episode.step_timeout_seconds
        self._step_seconds = episode.step_timeout_seconds
        self._resume_seconds = resume_seconds
        self._credits = credits_
        self._call: grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse] | None = None
        self._reading: asyncio.Future[object] | None = None
        self._opened = False
        self._sequence = 0

    async def open(self) -> None:
        """Waits for a slot and takes it.

        Raises:
            ResourceExhaustedError: none came free in time.
        """
        until = time.monotonic() + self._wait_seconds
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await stack.enter_async_context(self._credits.spend())
            except TimeoutError:
                raise ResourceExhaustedError(
                    f"{self._peer} had no free session within {self._wait_seconds:g} s",
                    reason="NO_SESSION",
                ) from None
            await self._connect(wait_seconds=max(0.0, until - time.monotonic()))
        self._opened = True

    async def reset(self, scenario: trajectory_pb2.Scenario, seed: int) -> pb.Observation:
        """Begins the episode."""
        reset = pb.ResetRequest(scenario=scenario, seed=seed)
        return (await self._ask(pb.SessionRequest(reset=reset))).reset.observation

    async def step(self, action: trajectory_pb2.Message) -> pb.StepResponse:
        """Acts."""
        return (await self._ask(pb.SessionRequest(step=pb.StepRequest(action=action)))).step

    async def score(self) -> pb.ScoreResponse:
        """Settles the reward, and ends a step that was cut."""
        return (await self._ask(pb.SessionRequest(score=pb.ScoreRequest()))).score

    async def close(self) -> None:
        """Gives the slot back, if the server can be told; else it does so by itself, later."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                # An open that still waits is taken back by ending its stream.
                if self._opened and self._call is not None and not self._call.done():
                    await self._ask(pb.SessionRequest(close=pb.CloseRequest()), resume=False)
                    await self._ended()
        except (PodiumError, EnvironmentRaisedError, TimeoutError):
            logger.debug("a session could not be closed", exc_info=True)
        finally:
            await self._drop()

    async def _ended(self) -> None:
        """Waits a little until the server ends the stream: one that we cancel, it logs as such."""
        if self._call is not None:
            await self._call.done_writing()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._call.code()

    async def _ask(self, request: pb.SessionRequest, *, resume: bool = True) -> pb.SessionResponse:
        self._sequence += 1
        request.sequence = self._sequence
        give_up: float | None = None
        while True:
            try:
                return await self._exchange(request)
            except _MAY_BE_BROKEN as error:
                again = give_up is not None and isinstance(error, InternalError)
                if not resume or again or not _broken(error):
                    raise
                give_up = give_up or time.monotonic() + self._resume_seconds
                await self._resume(error, give_up)

    async def _resume(self, cause: PodiumError, give_up: float) -> None:
        """Takes the session up again on a new stream.

        Raises:
            UnavailableError: the server stays away, or does not know the session any more.
        """
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        while True:
            pause = backoff.next()
            if time.monotonic() + pause > give_up:
                if isinstance(cause, UnavailableError):
                    raise cause
                raise UnavailableError(f"{self._peer} cannot be reached") from cause
            await asyncio.sleep(pause)
            try:
                await self._connect(resume=True)
            except NotFoundError as error:
                raise UnavailableError(
                    f"{self._peer} has lost the session", reason="SESSION_LOST"
                ) from error
            except UnavailableError:
                continue
            metrics.SESSIONS_RESUMED.inc()
            return

    async def _connect(self, *, wait_seconds: float = 0.0, resume: bool = False) -> None:
        await self._drop()
        limit = wait_seconds + _ANSWER_SECONDS
        # All that it may be queued for in time to come may be on this stream.
        whole = _ANSWER_SECONDS + self._wait_seconds + self._busy_seconds
        self._call = self._stub.Session(timeout=whole)
        opened = pb.OpenRequest(
            session_id=self._id,
            config=self._config,
            resume=resume,
            wait_seconds=wait_seconds,
            idle_seconds=self._busy_seconds,
            step_seconds=self._step_seconds,
        )
        try:
            async with asyncio.timeout(limit):
                await self._exchange(pb.SessionRequest(open=opened))
        except TimeoutError:
            raise UnavailableError(f"{self._peer} did not answer in {limit:g} s") from None
        except _MAY_BE_BROKEN as error:
            if isinstance(error, UnavailableError) or not _broken(error):
                raise
            raise UnavailableError(f"{self._peer} cannot be reached") from error

    async def _exchange(self, request: pb.SessionRequest) -> pb.SessionResponse:
        assert self._call is not None
        try:
            with rpc_errors(self._peer), ExitStack() as queue:
                # A write to a call that has ended says nothing; the read says how it ended.
                with suppress(asyncio.InvalidStateError):
                    await _whole(self._call.write(request))
                while True:
                    response = await self._read(self._call)
                    if response.HasField("queued"):
                        queue.close()
                        if response.queued.queued and response.queued.sequence == request.sequence:
                            queue.enter_context(queued())
                        continue
                    # One that was cut has perhaps been answered all the same.
                    if response.sequence == request.sequence:
                        return response
        except InternalError as error:
            if error.reason == "ENVIRONMENT_RAISED":
                kind, _, text = error.message.partition(": ")
                error_id = error.metadata.get("error_id", "")
                raise EnvironmentRaisedError(kind, text, error_id) from error
            raise

    async def _read(
        self, call: grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]
    ) -> pb.SessionResponse:
        if self._reading is None:
            self._reading = _watched(call.read())
        response = await asyncio.shield(self._reading)
        self._reading = None
        if not isinstance(response, pb.SessionResponse):
            raise UnavailableError(f"{self._peer} ended the session early", reason="SESSION_ENDED")
        await self._credits.learn(response)
        return response

    async def _drop(self) -> None:
        call = self._call
        self._call = self._reading = None
        if call is not None and not call.cancel():
            # To a call that has ended, gRPC goes on to wait for writes, until it is told.
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.done_writing()


# A stream that breaks ends, by what broke it, as UNAVAILABLE, INTERNAL or CANCELLED.
_MAY_BE_BROKEN = (UnavailableError, InternalError, RequestCancelledError)


def _broken(error: PodiumError) -> bool:
    """Whether the connection broke, and not the environment, which would say the same again."""
    return error.reason != "ENVIRONMENT_UNAVAILABLE" and "error_id" not in error.metadata


def _watched(awaitable: Awaitable[T]) -> asyncio.Future[T]:
    """A task whose exception nobody needs to see."""
    task = asyncio.ensure_future(awaitable)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _whole(awaitable: Awaitable[T]) -> T:
    """Awaits what a cut must not cancel: gRPC cancels the call with its reads and writes."""
    return await asyncio.shield(_watched(awaitable))
