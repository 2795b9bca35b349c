"""The sessions of one environment server: slots, options, and which of them are held."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from podium.core.errors import AlreadyExistsError, NotFoundError, UnavailableError
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.base import Environment
from podium.environments.serving.convert import unstruct
from podium.environments.serving.resumable_session import ResumableSession, as_podium_error
from podium.environments.serving.session import LocalSession
from podium.environments.serving.slots import SessionSlots


@dataclass(frozen=True)
class SessionLimits:
    """What a server grants."""

    max_sessions: int = 0
    """At once; 0 for no limit."""
    wait_seconds: float = 3600.0
    """The longest that an open waits for a slot."""
    idle_seconds: float = 3600.0
    """The longest that a session is held while no request comes."""
    resume_seconds: float = 60.0
    """How long a session is held after its stream broke."""


class Sessions:
    """Opens sessions and holds them over the streams that they are on."""

    def __init__(self, kind: type[Environment], limits: SessionLimits) -> None:
        """No session yet."""
        self.limits = limits
        self._kind = kind
        self._slots = SessionSlots(limits.max_sessions)
        self._held: dict[str, ResumableSession] = {}

    @property
    def credits(self) -> int | None:
        """How many more sessions would be opened at once; None for no limit."""
        return self._slots.credits

    async def open(self, request: pb.OpenRequest) -> tuple[ResumableSession, bool]:
        """A session, and whether it was there before.

        Raises:
            InvalidArgumentError: the environment refuses the options.
            NotFoundError: none to resume.
            AlreadyExistsError: it has other options.
            ResourceExhaustedError: no slot came free in time.
            InternalError: the environment's own code raised.
        """
        if held := self._find(request):
            return held, True
        if request.resume:
            raise NotFoundError(
                f"no session {request.session_id!r}; it was closed, or this server never had it",
                reason="SESSION_NOT_FOUND",
                metadata={"session_id": request.session_id},
            )
        try:
            # Before the slot: wrong options need not wait to be refused.
            environment = self._kind(unstruct(request.config))
        except Exception as error:
            raise as_podium_error(error) from error
        await self._slots.take(min(request.wait_seconds, self.limits.wait_seconds))
        try:
            # Another stream may have waited for the same one.
            if held := self._find(request):
                self._slots.give_back()
                return held, True
        except AlreadyExistsError:
            self._slots.give_back()
            raise
        held = ResumableSession(
            request,
            LocalSession(environment),
            idle_seconds=min(request.idle_seconds or float("inf"), self.limits.idle_seconds),
            resume_seconds=self.limits.resume_seconds,
            release=self._slots.give_back,
            forget=lambda: self._forget(request.session_id),
        )
        self._held[request.session_id] = held
        return held, False

    async def close(self) -> None:
        """Closes all of them."""
        why = UnavailableError("the server is stopping", reason="DRAINING")
        await asyncio.gather(*(held.expire(why) for held in list(self._held.values())))

    def _find(self, request: pb.OpenRequest) -> ResumableSession | None:
        held = self._held.get(request.session_id)
        if held is not None and held.opened.config != request.config:
            raise AlreadyExistsError(
                f"session {request.session_id!r} is open with another config",
                reason="SESSION_DIFFERS",
                metadata={"session_id": request.session_id},
            )
        return held

    def _forget(self, session_id: str) -> None:
        del self._held[session_id]
