"""Repeats what a lost service interrupted, for as long as the job may wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from podium.core.backoff import Backoff
from podium.core.errors import (
    DeadlineExceededError,
    PodiumError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.core.skip_reasons import (
    EPISODES_WERE_LOST,
    NO_ENVIRONMENT_ANSWERS,
    NO_JUDGE_ANSWERS,
    NO_TEACHER_ANSWERS,
)
from podium.jobs.v1 import job_service_pb2 as pb

from podium_controller.domain import metrics
from podium_controller.domain.errors import (
    SERVICES,
    STORE_FORBIDDEN,
    TOKEN_REFUSED,
    DatabaseUnavailableError,
    JobFailedError,
)
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.domain.waits import Wait
from podium_controller.training.reporter import Reporter

T = TypeVar("T")
Rebuild = Callable[[], Coroutine[Any, Any, bool]]
"""Brings a service back to where the job needs it; True when it had lost that state."""
Ready = Callable[[], Coroutine[Any, Any, bool]]
"""Returns when the service is there to be called; True when its loss is not to be counted."""

logger = logging.getLogger(__name__)

_TRANSIENT = (
    UnavailableError,
    DeadlineExceededError,
    RequestCancelledError,
    ResourceExhaustedError,
)
# A service that answers, but has forgotten the job: it was restarted in between.
_FORGOTTEN = {
    "POLICY_NOT_LOADED": "inference",
    "JOB_NOT_OPEN": "trainer",
    "WRONG_STEP": "trainer",
}
# What says more than that a service is lost.
_TELLING = frozenset({NO_JUDGE_ANSWERS, NO_TEACHER_ANSWERS, TOKEN_REFUSED, STORE_FORBIDDEN})
# How the rollout service says that an environment, and not itself, is away, lost or full.
_OF_ENVIRONMENT = frozenset(
    {NO_ENVIRONMENT_ANSWERS, EPISODES_WERE_LOST, "NO_SESSION", "QUEUED_TOO_LONG"}
)
_ENVIRONMENT = "environment"
# Of an environment that was given up, how much of the time the next group waits: it may come back.
_SHARE_ONCE_GIVEN_UP = 0.1
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# A call whose service comes back every time and is lost again every time.
_MOST_LOSSES = 10


def is_transient(error: PodiumError) -> bool:
    """Whether the same call may work later."""
    # The ledger has waited for it: the run ends, and begins anew when it is back.
    if isinstance(error, DatabaseUnavailableError):
        return False
    return isinstance(error, _TRANSIENT) or error.reason in _FORGOTTEN


def lost_service(error: PodiumError, called: str) -> str:
    """Which service the error is about: not always the one that was called."""
    if error.reason in _FORGOTTEN:
        return _FORGOTTEN[error.reason]
    if error.reason in _OF_ENVIRONMENT:
        return _ENVIRONMENT
    peer = error.metadata.get("peer", "")
    return peer if peer in SERVICES else called


async def _nothing() -> bool:
    return False


@dataclass
class _Loss:
    """A loss that still lasts: which service, since when, and the last error."""

    service: str
    since: float
    last: float


@dataclass
class _CallGroup:
    """All calls of one kind: they fail together and are brought back together."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    rebuilt: int = 0
    loss: _Loss | None = None
    given_up: bool = False
    """Whether one has waited for as long as it may, and none has come through since."""


@dataclass
class _Patience:
    """How much longer one call may be repeated."""

    seconds: float
    until: float = 0.0
    losses: int = 0
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_PAUSE, _LONGEST_PAUSE))

    def start(self) -> None:
        """The call has failed, for the first time or since its service was rebuilt."""
        if not self.until:
            self.until = time.monotonic() + self.seconds
            self.losses += 1

    @property
    def is_over(self) -> bool:
        return self.losses > _MOST_LOSSES or self.left() <= 0

    def left(self) -> float:
        return self.until - time.monotonic()

    def excuse(self, seconds: float, uncounted: bool) -> None:
        """Gives back seconds that the cluster took; `uncounted` forgets the loss itself too."""
        self.until += seconds
        if uncounted:
            self.losses -= 1
            self.until = time.monotonic() + self.seconds
            self.backoff.reset()

    def next_pause(self) -> float:
        """Seconds to wait before the next attempt: longer each time, never past the end."""
        return min(self.backoff.next(), max(self.left(), 0.0))

    def renew(self) -> None:
        """Starts afresh once the service is back, so that a later loss counts as a new one."""
        self.until = 0.0
        self.backoff.reset()


@dataclass
class _Side:
    """What one call may lose: the service that it asks, or an environment behind that."""

    calls: _CallGroup
    seconds: float
    """How long its loss is waited for."""
    rebuild: Rebuild = _nothing
    ready: Ready = _nothing
    rebuilt: int = 0

    @cached_property
    def patience(self) -> _Patience:
        """Of this call; most lose nothing, and need none."""
        return _Patience(self.seconds)


class Recovery:
    """Runs a job's calls of other services so that their losses only cost time."""

    def __init__(self, reporter: Reporter, control: StopSignals, timeout_seconds: float) -> None:
        """`timeout_seconds` is how long a lost service is waited for."""
        self._reporter = reporter
        self._control = control
        self._timeout = timeout_seconds
        self._calls: dict[str, _CallGroup] = {}

    async def run(
        self,
        service: str,
        call: Callable[[], Awaitable[T]],
        rebuild: Rebuild = _nothing,
        ready: Ready = _nothing,
        environment: str | None = None,
    ) -> T:
        """The result of `call`, repeated until its services let it through.

        Calls of one service that fail together are one loss: one of them
        rebuilds, the others wait and repeat. What `ready` takes, before each
        rebuild, is not counted against the service. The loss of an
        `environment`, by its name, is one of its own, which keeps no call that
        needs another waiting; nothing of it is to be rebuilt.

        Raises:
            JobFailedError: a service stayed away for too long; its reason is
                `<SERVICE>_LOST`, or what keeps it from working; of an
                environment ENVIRONMENT_UNAVAILABLE.
            PauseRequestedError: the job is to pause, and would have had to wait.
            PodiumError: what `call` raised, if time does not heal it.
        """
        sides = {service: _Side(self._group(service), self._timeout, rebuild, ready)}
        if environment is not None:
            calls = self._group(_key(environment))
            sides[_ENVIRONMENT] = _Side(calls, self._seconds_for(calls))
        while True:
            # From before the call: what was rebuilt while it ran is rebuilt for it too.
            began = time.monotonic()
            for side in sides.values():
                side.rebuilt = side.calls.rebuilt
            try:
                result = await call()
            except PodiumError as error:
                if not is_transient(error):
                    raise
                side = sides.get(lost_service(error, service), sides[service])
                if error.reason == EPISODES_WERE_LOST:
                    # It was there meanwhile.
                    side.patience.renew()
                side.patience.start()
                await self._recover(side, service, error)
            else:
                for side in sides.values():
                    side.calls.given_up = False
                    if side.calls.loss is not None:
                        await self._end_loss(side.calls, side.calls.loss, began)
                return result

    def has_given_up(self, environment: str) -> bool:
        """Whether the environment was away for as long as the job waits, and is not back."""
        return self._group(_key(environment)).given_up

    def _group(self, key: str) -> _CallGroup:
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = _CallGroup()
        return found

    def _seconds_for(self, calls: _CallGroup) -> float:
        return self._timeout * (_SHARE_ONCE_GIVEN_UP if calls.given_up else 1.0)

    async def _recover(self, side: _Side, called: str, error: PodiumError) -> None:
        calls, patience = side.calls, side.patience
        async with calls.lock:
            # Whoever had the lock first has brought the service back; repeating is enough.
            if calls.rebuilt != side.rebuilt:
                return
            await self._begin_loss(calls, called, error)
            async with self._reporter.recovering(_wait_for(called, error)):
                while True:
                    if patience.is_over:
                        calls.given_up = True
                        raise _given_up(patience, called, error) from error
                    await self._control.unless_paused(asyncio.sleep(patience.next_pause()))
                    # The cluster may need minutes to place a pod, which is not the service's doing.
                    asked = time.monotonic()
                    uncounted = await self._control.unless_paused(side.ready())
                    patience.excuse(time.monotonic() - asked, uncounted)
                    try:
                        # Never 0, which would end the last try before it has begun.
                        async with asyncio.timeout(max(patience.left(), 0.01)):
                            had_lost_state = await self._control.unless_paused(side.rebuild())
                        break
                    except TimeoutError:
                        # The time is up, which the loop's head tells with the last error.
                        continue
                    except PodiumError as again:
                        if not is_transient(again):
                            raise
                        error = again
                        await self._reporter.still_recovering(_wait_for(called, error))
            calls.rebuilt += 1
        # Whoever lost it was away and is back. Whoever kept it may be failing still, and its time
        # goes on.
        if had_lost_state:
            patience.renew()

    async def _begin_loss(self, calls: _CallGroup, called: str, error: PodiumError) -> None:
        now = time.monotonic()
        service = lost_service(error, called)
        # However many groups lose inference, people read of it once.
        if calls.loss is not None and calls.loss.service == service:
            calls.loss.last = now
            return
        calls.loss = _Loss(service, now, now)
        metrics.RECOVERIES.labels(service).inc()
        logger.warning(
            "service lost",
            extra={"job": self._reporter.job_id, "lost": service, "error": error.message},
        )
        what = "has no room" if isinstance(error, ResourceExhaustedError) else "is lost"
        await self._reporter.event(
            pb.EVENT_TYPE_RECOVERY,
            f"{service} {what} ({error.message}); waiting for it, for at most"
            f" {self._timeout:g} seconds",
        )

    async def _end_loss(self, calls: _CallGroup, loss: _Loss, began: float) -> None:
        # A call from before the loss proves nothing about what came after.
        if began < loss.last:
            return
        calls.loss = None
        seconds = time.monotonic() - loss.since
        await self._reporter.event(
            pb.EVENT_TYPE_RECOVERY,
            f"{loss.service} is back after {seconds:.1f} seconds; the job goes on",
        )


def _key(environment: str) -> str:
    return f"{_ENVIRONMENT} {environment}"


def _given_up(patience: _Patience, called: str, error: PodiumError) -> JobFailedError:
    service = lost_service(error, called)
    if patience.losses > _MOST_LOSSES:
        why = f"{service} was lost {patience.losses} times in the same call"
    else:
        why = f"{service} stayed away for more than {patience.seconds:g} seconds"
    return JobFailedError(
        f"{why}: {error.message}",
        reason=_reason(service, error),
        metadata={"service": service},
    )


def _wait_for(called: str, error: PodiumError) -> Wait:
    return Wait(_reason(lost_service(error, called), error), error.message)


def _reason(service: str, error: PodiumError) -> str:
    if service == _ENVIRONMENT:
        return NO_ENVIRONMENT_ANSWERS
    says_why = isinstance(error, ResourceExhaustedError) or error.reason in _TELLING
    return error.reason if says_why else f"{service.upper()}_LOST"
