"""Commits steps together with what the coach says of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from podium.core.findings import open_findings
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

from podium_controller.domain.coach import WINDOW_STEPS, CoachEvent, news
from podium_controller.domain.ports import Ledger
from podium_controller.domain.row_length import left_out


class Coaching:
    """One job's coach. All that it knows is stored, so that no crash has it say a thing twice."""

    def __init__(self, job_id: str, spec: spec_pb2.JobSpec, ledger: Ledger) -> None:
        self._job_id = job_id
        self._spec = spec
        self._ledger = ledger
        self._past: _Past | None = None

    async def commit(self, step: pb.Step) -> bool:
        """Commits a step and its warnings at once; False when it was committed before."""
        past = self._past or await self._look()
        # What comes of this attempt is known when it has come to its end.
        self._past = None
        coach_events = self._of_step(step, past)
        committed = await self._ledger.commit_step(self._job_id, step, coach_events)
        if committed:
            past.add(step, coach_events)
            self._past = past
        return committed

    def _of_step(self, step: pb.Step, past: _Past) -> list[CoachEvent]:
        coach_events = news(past.open, [*past.steps, step][-WINDOW_STEPS:], self._spec)
        if text := left_out(step.metrics, self._spec):
            coach_events.append(CoachEvent(pb.EVENT_TYPE_WARNING, text))
        return coach_events

    async def _look(self) -> _Past:
        stored = await self._ledger.past(self._job_id, WINDOW_STEPS)
        return _Past(stored.steps, open_findings(stored.events))


class _Past:
    def __init__(self, steps: Sequence[pb.Step], open_: dict[str, str]) -> None:
        self.steps = deque(steps, WINDOW_STEPS)
        self.open = open_

    def add(self, step: pb.Step, coach_events: Sequence[CoachEvent]) -> None:
        self.steps.append(step)
        began = [(pb.EVENT_TYPE_WARNING, message) for message in self.open.values()]
        self.open = open_findings([*began, *((each.kind, each.message) for each in coach_events)])
