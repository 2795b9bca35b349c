"""Reports what a job does: its phase, events, spans and durations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager, suppress

from opentelemetry.util.types import AttributeValue
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.telemetry import attributes, exemplar, traced, tracer

from podium_controller.domain import metrics
from podium_controller.domain.errors import DatabaseUnavailableError, LeaseLostError
from podium_controller.domain.ports import Ledger
from podium_controller.domain.waits import (
    ENVIRONMENT_STARTING,
    NOTHING,
    TRAINER_POOL_STARTING,
    TRAINER_STARTING,
    OnWait,
    Wait,
)

COLLECT = "collect"
JUDGE = "judge"
OPEN = "open"
TRAIN = "train"
STATE = "state"
"""Waiting for the state of an earlier version, before another one's is copied."""
PUBLISH = "publish"
SERVE = "serve"
EVALUATE = "evaluate"
RECOVER = "recover"
WAIT = "wait"

_tracer = tracer(__name__)

_LINGER_SECONDS = 1.0

_STARTS = (TRAINER_STARTING, TRAINER_POOL_STARTING, ENVIRONMENT_STARTING)


class Reporter:
    """Reports for one job. `phase` is the main loop's, whatever else runs beside it."""

    def __init__(self, job_id: str, ledger: Ledger) -> None:
        self.job_id = job_id
        self._ledger = ledger
        self._phase = ""
        self._recovering = 0
        self._lost = NOTHING
        self._leaving: asyncio.Task[None] | None = None
        # A former run may have left something.
        self._shows_wait = True
        self._held = NOTHING

    async def close(self) -> None:
        """Stops the writes that it makes in the background."""
        await self._stay()

    async def set_phase(self, phase: str) -> None:
        """Writes the phase, unless a recovery shows its own."""
        if phase == self._phase:
            return
        # Kept in any case: it is what is shown when the recovery is over.
        self._phase = phase
        lingered = not self._recovering and await self._stay()
        if self._recovering:
            return
        await self._ledger.set_phase(self.job_id, phase)
        if lingered:
            await self._show_held()

    @asynccontextmanager
    async def recovering(self, wait: Wait) -> AsyncIterator[None]:
        """The phase is `recover` inside, whoever else sets one, and the job waits for `wait`.

        It stays so for a moment after, since the next attempt may fail at once: a service that
        is away would otherwise cost every job four writes an attempt.
        """
        self._recovering += 1
        try:
            # Calls of several services may be lost at once; the first one speaks for all.
            if self._recovering == 1:
                shown = await self._stay() and wait == self._lost
                if not shown:
                    self._lost = wait
                    await self._ledger.set_phase(self.job_id, RECOVER)
                    await self._set_wait(wait)
            yield
        finally:
            self._recovering -= 1
        # Not after an error: the end of the run writes its own phase.
        if not self._recovering:
            self._leaving = asyncio.create_task(self._leave())

    async def still_recovering(self, wait: Wait) -> None:
        """Inside `recovering`: what the job waits for is something else by now."""
        # The same trouble in other words is not worth a write an attempt.
        if wait.reason != self._lost.reason:
            self._lost = wait
            await self._set_wait(wait)

    async def _leave(self) -> None:
        await asyncio.sleep(_LINGER_SECONDS)
        self._lost = NOTHING
        # What ends the job's run meets its other writes too.
        with suppress(LeaseLostError, DatabaseUnavailableError):
            await self._ledger.set_phase(self.job_id, self._phase)
            await self._show_held()
        self._leaving = None

    async def _stay(self) -> bool:
        """Whether `recover` was shown still, and is left for the caller to replace."""
        if self._leaving is None:
            return False
        await cancel_and_wait(self._leaving)
        # It may have come to its end first, and has then written what there was to write.
        lingered = self._leaving is not None
        self._leaving = None
        return lingered

    async def _show_held(self) -> None:
        await self._set_wait(self._held)

    @asynccontextmanager
    async def waiting(self, what: str = "the trainer") -> AsyncIterator[OnWait]:
        """Says what the job's trainer waits for. Each reason is an event once; a start is none."""
        # A pod that waits for a node is asked about every few seconds, and told of once.
        reported: set[str] = set()

        async def on_wait(wait: Wait) -> None:
            self._shows_wait = True
            await self._set_wait(wait)
            if wait.reason not in reported and wait.reason not in _STARTS:
                reported.add(wait.reason)
                await self.warn(f"{what} is not there: {wait.message} ({wait.reason})")

        yield on_wait
        if self._shows_wait:
            await self._set_wait(NOTHING)
            self._shows_wait = False
        if reported:
            await self.event(pb.EVENT_TYPE_RECOVERY, f"{what} is there; the job goes on")

    async def held(self, wait: Wait) -> None:
        """Reports what every group waits for; NOTHING once one has started."""
        if wait != self._held:
            self._held = wait
            await self._set_wait(wait)

    async def _set_wait(self, wait: Wait) -> None:
        metrics.waiting(self.job_id, wait.reason)
        await self._ledger.set_wait(self.job_id, wait.reason, wait.message)

    async def event(self, kind: pb.EventType.ValueType, message: str, step: int = 0) -> None:
        """Appends to the job's history."""
        await self._ledger.add_event(self.job_id, kind, message, step)

    async def warn(self, message: str, step: int = 0) -> None:
        """Writes a warning to the job's events, for people."""
        await self.event(pb.EVENT_TYPE_WARNING, message, step)

    @asynccontextmanager
    async def timed(
        self,
        phase: str,
        seconds: MutableMapping[str, float] | None = None,
        *,
        foreground: bool = True,
        step: int = 0,
    ) -> AsyncIterator[None]:
        """A phase with its span and its duration, which is added to `seconds` too."""
        if foreground:
            await self.set_phase(phase)
        began = time.perf_counter()
        told: dict[str, AttributeValue] = {
            attributes.JOB_ID: self.job_id,
            attributes.STEP: step,
            attributes.PHASE: phase,
        }
        with traced(_tracer, phase, told):
            yield
            took = time.perf_counter() - began
            metrics.STEP_SECONDS.labels(phase).observe(took, exemplar())
            metrics.PHASE_SECONDS.labels(self.job_id, phase).inc(took)
        if seconds is not None:
            seconds[phase] = seconds.get(phase, 0.0) + took
