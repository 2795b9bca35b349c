"""A session that outlives its streams: acts once on each request and remembers the last answer."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable

from podium.core.errors import (
    AbortedError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    OutOfRangeError,
    PodiumError,
    UnavailableError,
    Violation,
)
from podium.core.outside import clean
from podium.core.time_limits import Clock, clocked
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.serving.session import LocalSession

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 10.0
"""What an environment may take to close, and what runs in it to be cancelled."""

Lost = asyncio.Future[PodiumError]
"""Done when a stream has lost its session, with the reason."""


class ResumableSession:
    """One session of a server, on one stream after the other."""

    def __init__(
        self,
        opened: pb.OpenRequest,
        session: LocalSession,
        *,
        idle_seconds: float,
        resume_seconds: float,
        release: Callable[[], None],
        forget: Callable[[], None],
    ) -> None:
        """`release` is called when the environment is closed, `forget` when nothing is left."""
        self.opened = opened
        self.idle_seconds = idle_seconds
        self.resume_seconds = resume_seconds
        self.sequence = 0
        self.news = asyncio.Event()
        """Set when what runs begins to be queued or no longer is."""
        self._queued: set[int] = set()
        self._session = session
        self._release = release
        self._forget = forget
        self._last: pb.SessionRequest | None = None
        self._action: asyncio.Task[pb.SessionResponse] | None = None
        self._failed = False
        self._stream: Lost | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._gone = False

    @property
    def queued(self) -> bool:
        """Whether the last request waits its turn at something that sessions share."""
        return self.sequence in self._queued

    def attach(self) -> Lost:
        """Gives the session to a stream; one that had it loses it."""
        self._lose(
            AbortedError("another stream has taken the session over", reason="SESSION_TAKEN_OVER")
        )
        self._stream = asyncio.get_running_loop().create_future()
        self._wind()
        return self._stream

    def detach(self, stream: Lost) -> None:
        """The stream has ended; nothing, if it had lost the session."""
        if self._stream is stream:
            self._stream = None
            self._wind()

    def submit(self, request: pb.SessionRequest) -> asyncio.Task[pb.SessionResponse]:
        """The task that answers a request; of one that is sent again, the task of the first time.

        Raises:
            OutOfRangeError: not the next number, nor the last.
            InvalidArgumentError: the last number, but another request.
            FailedPreconditionError: another request runs, or has failed.
        """
        if self._action is not None and request.sequence == self.sequence:
            if request != self._last:
                raise InvalidArgumentError(
                    violations=[
                        Violation("sequence", f"got {self.sequence} again, for another request")
                    ],
                    reason="SEQUENCE_REUSED",
                )
            return self._action
        kind = request.WhichOneof("request")
        ends = kind in ("score", "close")
        # A step that was cut before it arrived has left a gap.
        skips = ends and request.sequence > self.sequence
        if request.sequence != self.sequence + 1 and not skips:
            raise OutOfRangeError(
                f"sequence: got {request.sequence}; allowed are {self.sequence + 1}, and "
                f"{self.sequence} for the last request again",
                reason="SEQUENCE_OUT_OF_ORDER",
            )
        if self._failed and kind != "close":
            raise FailedPreconditionError(
                f"{kind} after a request that failed", reason="NO_RUNNING_EPISODE"
            )
        if self._runs() and not ends:
            raise FailedPreconditionError(
                f"{kind} while another request runs", reason="REQUEST_RUNNING"
            )
        self.sequence, self._last = request.sequence, request
        self._action = asyncio.create_task(self._act(request, self._action))
        self._action.add_done_callback(self._acted)
        self._wind()
        return self._action

    async def end(self) -> None:
        """Closes the environment, whatever runs, and gives the slot back; once."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def expire(self, why: PodiumError) -> None:
        """Ends the session and leaves nothing to resume."""
        self._lose(why)
        await self.end()
        self._go()

    def _lose(self, why: PodiumError) -> None:
        if self._stream is not None and not self._stream.done():
            self._stream.set_result(why)
        self._stream = None

    def _runs(self) -> bool:
        return self._action is not None and not self._action.done()

    async def _act(
        self, request: pb.SessionRequest, before: asyncio.Task[pb.SessionResponse] | None
    ) -> pb.SessionResponse:
        def turned(queued: bool) -> None:
            (self._queued.add if queued else self._queued.discard)(request.sequence)
            self.news.set()

        try:
            # The client ends what takes too long; here one only knows how long that is.
            with clocked(Clock(self.opened.step_seconds or float("inf"), turned=turned)):
                return await self._answer(request, before)
        except Exception as error:
            raise as_podium_error(error) from error

    async def _answer(
        self, request: pb.SessionRequest, before: asyncio.Task[pb.SessionResponse] | None
    ) -> pb.SessionResponse:
        response = pb.SessionResponse(sequence=request.sequence)
        match request.WhichOneof("request"):
            case "reset":
                observation = await self._session.reset(request.reset.scenario, request.reset.seed)
                response.reset.observation.CopyFrom(observation)
            case "step":
                response.step.CopyFrom(await self._session.step(request.step.action))
            case "score":
                await _cancelled(before)
                response.score.CopyFrom(await self._session.score())
            case "close":
                await _cancelled(before)
                await self.end()
                self._go()
                response.close.SetInParent()
            case _:
                raise InvalidArgumentError(
                    violations=[Violation("request", "set reset, step, score or close")]
                )
        return response

    def _acted(self, action: asyncio.Task[pb.SessionResponse]) -> None:
        if action is not self._action or action.cancelled():
            return
        if action.exception() is not None:
            self._failed = True
            self._ending = self._ending or asyncio.create_task(self._end())
        self._wind()

    async def _end(self) -> None:
        if self._last is None or not self._last.HasField("close"):
            await _cancelled(self._action)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._session.close()
        except Exception:
            logger.warning("an environment could not be closed", exc_info=True)
        self._release()

    def _go(self) -> None:
        if not self._gone:
            self._gone = True
            self._unwind()
            self._forget()

    def _wind(self) -> None:
        self._unwind()
        if self._gone:
            return
        loop = asyncio.get_running_loop()
        if self._stream is None:
            self._timer = loop.call_later(self.resume_seconds, self._on_timer)
        elif not self._runs():
            self._timer = loop.call_later(self.idle_seconds, self._on_timer)

    def _unwind(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        why = DeadlineExceededError(
            f"the session got no request for {self.idle_seconds:g} s", reason="SESSION_IDLE"
        )
        self._expiring = asyncio.create_task(self.expire(why))


async def _cancelled(action: asyncio.Task[pb.SessionResponse] | None) -> None:
    if action is not None and not action.done():
        action.cancel()
        await asyncio.wait([action], timeout=CLOSE_SECONDS)


def as_podium_error(error: Exception) -> PodiumError:
    """What a client is told that an environment raised: all of it, as the code is the client's."""
    if isinstance(error, UnavailableError):
        # Not to be taken for a connection that broke, after which one asks again.
        return UnavailableError(
            error.message, reason="ENVIRONMENT_UNAVAILABLE", metadata=error.metadata
        )
    if isinstance(error, PodiumError):
        return error
    # With an id of its own, so that the server does not mask it.
    error_id = uuid.uuid4().hex[:12]
    logger.warning("the environment raised", exc_info=error, extra={"error_id": error_id})
    kind = clean(type(error).__name__)
    return InternalError(
        f"{kind}: {clean(str(error))}",
        reason="ENVIRONMENT_RAISED",
        metadata={"type": kind, "error_id": error_id},
    )
