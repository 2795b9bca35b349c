"""Repeats what a lost service interrupted, for as long as the job may wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from podium.core.backoff import Backoff
from podium.core.errors import (
    DeadlineExceededError,
    PodiumError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.core.skip_reasons import NO_JUDGE_ANSWERS, NO_TEACHER_ANSWERS
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
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# A call whose service comes back every time and is lost again every time.
_MOST_LOSSES = 10


def is_transient(error: PodiumError) -> bool:
    """Whether the same call may work later."""
    # The run ends and begins anew when it is back: whatever is done here would have to be written.
    if isinstance(error, DatabaseUnavailableError):
        return False
    return isinstance(error, _TRANSIENT) or error.reason in _FORGOTTEN


def lost_service(error: PodiumError, called: str) -> str:
    """Which service the error is about: not always the one that was called."""
    if error.reason in _FORGOTTEN:
        return _FORGOTTEN[error.reason]
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
    ) -> T:
        """The result of `call`, repeated until its services let it through.

        Calls of one service that fail together are one loss: one of them
        rebuilds, the others wait and repeat. What `ready` takes, before each
        rebuild, is not counted against the service.

        Raises:
            JobFailedError: a service stayed away for too long; its reason is
                `<SERVICE>_LOST`, or what keeps it from working.
            PauseRequestedError: the job is to pause, and would have had to wait.
            PodiumError: what `call` raised, if time does not heal it.
        """
        calls = self._calls.setdefault(service, _CallGroup())
        patience = _Patience(self._timeout)
        while True:
            # From before the call: what was rebuilt while it ran is rebuilt for it too.
            rebuilt, began = calls.rebuilt, time.monotonic()
            try:
                result = await call()
            except PodiumError as error:
                if not is_transient(error):
                    raise
                patience.start()
                await self._recover(calls, rebuilt, service, error, patience, rebuild, ready)
            else:
                await self._end_loss(calls, began)
                return result

    async def _recover(
        self,
        calls: _CallGroup,
        rebuilt: int,
        called: str,
        error: PodiumError,
        patience: _Patience,
        rebuild: Rebuild,
        ready: Ready,
    ) -> None:
        async with calls.lock:
            # Whoever had the lock first has brought the service back; repeating is enough.
            if calls.rebuilt != rebuilt:
                return
            await self._begin_loss(calls, called, error)
            async with self._reporter.recovering(_wait_for(called, error)):
                while True:
                    _give_up_if_over(patience, called, error)
                    await self._control.unless_paused(asyncio.sleep(patience.next_pause()))
                    # The cluster may need minutes to place a pod, which is not the service's doing.
                    asked = time.monotonic()
                    uncounted = await self._control.unless_paused(ready())
                    patience.excuse(time.monotonic() - asked, uncounted)
                    try:
                        # Never 0, which would end the last try before it has begun.
                        async with asyncio.timeout(max(patience.left(), 0.01)):
                            had_lost_state = await self._control.unless_paused(rebuild())
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

    async def _end_loss(self, calls: _CallGroup, began: float) -> None:
        loss = calls.loss
        # A call from before the loss proves nothing about what came after.
        if loss is None or began < loss.last:
            return
        calls.loss = None
        seconds = time.monotonic() - loss.since
        await self._reporter.event(
            pb.EVENT_TYPE_RECOVERY,
            f"{loss.service} is back after {seconds:.1f} seconds; the job goes on",
        )


def _give_up_if_over(patience: _Patience, called: str, error: PodiumError) -> None:
    service = lost_service(error, called)
    if patience.losses > _MOST_LOSSES:
        why = f"{service} was lost {patience.losses} times in the same call"
    elif patience.left() <= 0:
        why = f"{service} stayed away for more than {patience.seconds:g} seconds"
    else:
        return
    raise JobFailedError(
        f"{why}: {error.message}",
        reason=_reason(service, error),
        metadata={"service": service},
    ) from error


def _wait_for(called: str, error: PodiumError) -> Wait:
    return Wait(_reason(lost_service(error, called), error), error.message)


def _reason(service: str, error: PodiumError) -> str:
    says_why = isinstance(error, ResourceExhaustedError) or error.reason in _TELLING
    return error.reason if says_why else f"{service.upper()}_LOST"
