"""A ledger that waits for its database, so that an outage cuts nothing that is underway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from podium.core.backoff import Backoff
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import trajectory_pb2

from podium_controller.domain.coach import CoachEvent
from podium_controller.domain.errors import DatabaseUnavailableError
from podium_controller.domain.job_states import State
from podium_controller.domain.ports import (
    JUDGED,
    GroupKey,
    Ledger,
    Past,
    StoredGroup,
    Submission,
)
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.domain.taken import Drawn

T = TypeVar("T")

logger = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 2.0
# Of what was told, among which an event is looked for whose answer was lost.
_NEWEST = 20


class PatientLedger:
    """Implements `ports.Ledger` over another one.

    A call that does not reach the database is repeated: until it does, until the job is to pause,
    or until `give_up`. Nothing bounds it but the run: whoever leads ends it once the lease is lost.
    A write of which nobody knows whether it came to be is done once, whichever it was.
    """

    def __init__(self, ledger: Ledger, control: StopSignals) -> None:
        """`control` says whether the job is to pause."""
        self._ledger = ledger
        self._control = control
        self._gave_up = False
        self._is_away = False

    def give_up(self) -> None:
        """From now on nothing is repeated: the run ends, and must not wait in what it cleans up."""
        self._gave_up = True

    async def _patiently(
        self, call: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]] | None = None
    ) -> T:
        """The call's result; `again` is asked in its place where it may have come to be."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        attempt = call
        while True:
            try:
                result = await attempt()
                self._is_away = False
                return result
            except DatabaseUnavailableError as error:
                if self._gave_up or self._control.pause.is_set():
                    raise
                # Once an outage, and not for each group that is underway.
                if not self._is_away:
                    logger.warning(
                        "the database cannot be reached; what is underway waits for it",
                        extra={"error": error.message},
                    )
                self._is_away = True
                attempt = again or call
            await asyncio.sleep(backoff.next())

    async def drawn(self, job_id: str) -> Drawn | None:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.drawn(job_id))

    async def take_groups(
        self, job_id: str, groups: Sequence[trajectory_pb2.Group], drawn: Drawn, *, last: bool
    ) -> None:
        """See `ports.Ledger`."""

        async def again() -> None:
            if await self._ledger.drawn(job_id) != drawn:
                await self._ledger.take_groups(job_id, groups, drawn, last=last)

        await self._patiently(
            lambda: self._ledger.take_groups(job_id, groups, drawn, last=last), again
        )

    async def set_phase(self, job_id: str, phase: str) -> None:
        """See `ports.Ledger`."""
        await self._patiently(lambda: self._ledger.set_phase(job_id, phase))

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        """See `ports.Ledger`."""
        await self._patiently(lambda: self._ledger.set_wait(job_id, reason, message))

    async def add_event(
        self, job_id: str, kind: pb.EventType.ValueType, message: str, step: int = 0
    ) -> None:
        """See `ports.Ledger`."""

        async def again() -> None:
            told = (await self._ledger.past(job_id, 1)).events
            if (kind, message) not in told[-_NEWEST:]:
                await self._ledger.add_event(job_id, kind, message, step)

        await self._patiently(lambda: self._ledger.add_event(job_id, kind, message, step), again)

    async def stored_groups(self, job_id: str, step: int, mode: str = "") -> dict[int, StoredGroup]:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.stored_groups(job_id, step, mode))

    async def save_group(self, key: GroupKey, status: str, group: trajectory_pb2.Group) -> None:
        """See `ports.Ledger`."""
        await self._patiently(lambda: self._ledger.save_group(key, status, group))

    async def save_judged(
        self,
        key: GroupKey,
        group: trajectory_pb2.Group,
        usage: judge_pb.JudgeUsage,
        month: str,
    ) -> None:
        """See `ports.Ledger`."""

        async def again() -> None:
            stored = await self._ledger.stored_groups(key.job_id, key.step, key.mode)
            # What the judges took is counted with it, and not twice.
            if not _is_judged(stored.get(key.position), group):
                await self._ledger.save_judged(key, group, usage, month)

        await self._patiently(lambda: self._ledger.save_judged(key, group, usage, month), again)

    async def judge_usage(self, job_id: str) -> judge_pb.JudgeUsage:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.judge_usage(job_id))

    async def project_judge_tokens(self, project: str, month: str) -> int:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.project_judge_tokens(project, month))

    async def drop_group(self, key: GroupKey) -> None:
        """See `ports.Ledger`."""
        await self._patiently(lambda: self._ledger.drop_group(key))

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        """See `ports.Ledger`."""

        async def again() -> bool:
            await self._ledger.commit_step(job_id, step, coach_events)
            # Now or before: none but the holder of the lease commits, and it is this one.
            return True

        return await self._patiently(
            lambda: self._ledger.commit_step(job_id, step, coach_events), again
        )

    async def past(self, job_id: str, steps: int) -> Past:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.past(job_id, steps))

    async def commit_evaluation(self, job_id: str, evaluation: pb.Evaluation) -> None:
        """See `ports.Ledger`."""
        await self._patiently(lambda: self._ledger.commit_evaluation(job_id, evaluation))

    async def await_submission(self, job_id: str, step: int, seconds: float) -> Submission:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.await_submission(job_id, step, seconds))

    async def evaluated_modes(self, job_id: str, version: int) -> set[str]:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.evaluated_modes(job_id, version))

    async def state_of(self, job_id: str) -> State | None:
        """See `ports.Ledger`."""
        return await self._patiently(lambda: self._ledger.state_of(job_id))


def _is_judged(stored: StoredGroup | None, group: trajectory_pb2.Group) -> bool:
    """Whether it is stored as judged; by its bytes, for a reward that is no number equals none."""
    if stored is None or stored.status != JUDGED:
        return False
    there, ours = (each.SerializeToString(deterministic=True) for each in (stored.group, group))
    return there == ours
