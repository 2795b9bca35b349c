"""Tells what a job does: phase and events in the ledger, spans, seconds."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager

from podium.jobs.v1 import job_service_pb2 as pb
from podium.telemetry import attributes, tracer

from podium_controller import metrics
from podium_controller.ports import Ledger

COLLECT = "collect"
JUDGE = "judge"
TRAIN = "train"
PUBLISH = "publish"
SERVE = "serve"
EVALUATE = "evaluate"
RECOVER = "recover"
WAIT = "wait"

_tracer = tracer(__name__)


class Reporter:
    """One job's voice. `phase` is what its main line does, whatever else runs beside it."""

    def __init__(self, job_id: str, ledger: Ledger) -> None:
        self.job_id = job_id
        self._ledger = ledger
        self._phase = ""
        self._recovering = 0

    async def set_phase(self, phase: str) -> None:
        """Writes the phase, unless a recovery has the word."""
        if phase == self._phase:
            return
        self._phase = phase
        if not self._recovering:
            await self._ledger.set_phase(self.job_id, phase)

    @asynccontextmanager
    async def recovering(self) -> AsyncIterator[None]:
        """The phase is `recover` inside, whoever else sets one."""
        self._recovering += 1
        try:
            if self._recovering == 1:
                await self._ledger.set_phase(self.job_id, RECOVER)
            yield
        finally:
            self._recovering -= 1
        if not self._recovering:
            await self._ledger.set_phase(self.job_id, self._phase)

    async def event(self, kind: pb.EventType.ValueType, message: str, step: int = 0) -> None:
        """Appends to the job's history."""
        await self._ledger.add_event(self.job_id, kind, message, step)

    async def warn(self, message: str, step: int = 0) -> None:
        """Something that people should know."""
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
        with _tracer.start_as_current_span(
            phase,
            attributes={
                attributes.JOB_ID: self.job_id,
                attributes.STEP: step,
                attributes.PHASE: phase,
            },
        ):
            yield
        took = time.perf_counter() - began
        metrics.STEP_SECONDS.labels(phase).observe(took)
        if seconds is not None:
            seconds[phase] = seconds.get(phase, 0.0) + took
