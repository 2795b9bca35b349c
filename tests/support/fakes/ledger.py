"""`ports.LeaderLedger` in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from podium.core.errors import InternalError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain import job_states
from podium_controller.domain.coach import CoachEvent
from podium_controller.domain.identifiers import WAITING_ROOM
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import (
    CONSUMED,
    JUDGED,
    GroupKey,
    JobRecord,
    Past,
    StoredGroup,
    Submission,
)
from podium_controller.domain.step_metrics import seconds_per_step
from podium_controller.domain.taken import Drawn
from podium_controller.domain.usage import of_groups, of_judges, of_step
from podium_controller.domain.waits import NOTHING, PLACES, Wait
from podium_controller.store.batches import IDLE
from podium_controller.store.past import COACH_EVENT_TYPES
from podium_controller.store.rows import record
from support.fakes.database import GroupRow, MemoryDatabase, add_event, move
from support.fakes.leases import CONTROLLER
from support.fakes.trajectories import MemoryTrajectories
from support.fakes.usage import MemoryUsage, count_usage

T = TypeVar("T")
_POLL_SECONDS = 1.0
_COUNTS = ("calls", "prompt_tokens", "completion_tokens", "cost", "cached")


class MemoryLedger:
    """See `podium_controller.store.SqlLedger`."""

    def __init__(self, database: MemoryDatabase, notifications: Notifications, epoch: int) -> None:
        self._database = database
        self._notifications = notifications
        self._epoch = epoch
        self.usage = MemoryUsage(database, self._write, epoch)
        self.trajectories = MemoryTrajectories(database, self._write)

    async def in_states(self, wanted: Sequence[job_states.State]) -> list[JobRecord]:
        def work() -> list[JobRecord]:
            rows = [r for r in self._database.jobs.values() if r.state in wanted and not r.deleted]
            rows.sort(key=lambda row: (row.queue_time, row.number))
            return [record(row) for row in rows]  # type: ignore[arg-type]

        return await self._database.transact(work)

    async def start(self, job_id: str, pool: str, trainer_pool: str = "") -> bool:
        def work() -> bool:
            row = self._database.any_job(job_id)
            if row.state != pb.JOB_STATE_QUEUED:
                return False
            move(row, pb.JOB_STATE_RUNNING)
            row.pool, row.trainer_pool = pool, trainer_pool
            return True

        return await self._told(job_id, work)

    async def keep_waiting(self, waits: Mapping[str, Wait]) -> None:
        if not waits:
            return

        def work() -> None:
            for job_id, wait in waits.items():
                row = self._database.jobs.get(job_id)
                if row is not None and row.state == pb.JOB_STATE_QUEUED:
                    row.wait_reason, row.wait_message = wait.reason, wait.message

        await self._write(work)

    async def settle(
        self, job_id: str, outcome: job_states.State, *, reason: str = "", message: str = ""
    ) -> job_states.State:
        def work() -> job_states.State:
            row = self._database.any_job(job_id)
            target = job_states.after_run(row.state, outcome)
            if target == pb.JOB_STATE_FAILED:
                move(row, target, reason=reason, message=message)
            else:
                move(row, target)
            return target

        return await self._told(job_id, work)

    async def rest(
        self, job_id: str, why: Wait = NOTHING, budget: spec_pb2.BudgetSpec | None = None
    ) -> job_states.State:
        def work() -> job_states.State:
            row = self._database.any_job(job_id)
            running = row.state == pb.JOB_STATE_RUNNING
            if running and budget is not None:
                news = spec_pb2.JobSpec.FromString(row.spec).budget != budget
                target = pb.JOB_STATE_QUEUED if news else pb.JOB_STATE_PAUSED
            elif running:
                news = row.finishing or row.completed_steps + 1 in row.batches
                target = pb.JOB_STATE_QUEUED if news else pb.JOB_STATE_PAUSED
            else:
                target = job_states.after_run(row.state, pb.JOB_STATE_PAUSED)
            paused = target == pb.JOB_STATE_PAUSED
            idle = paused and running and not why.reason
            message = why.message if paused else ""
            move(row, target, message=message, phase=IDLE if idle else "wait")
            if paused:
                row.wait_reason, row.wait_message = why.reason, why.message
            return target

        return await self._told(job_id, work)

    async def await_submission(self, job_id: str, step: int, seconds: float) -> Submission:
        until = time.monotonic() + seconds

        def work() -> Submission:
            row = self._database.job(job_id)
            batch = row.batches.get(step)
            gone = self._database.client_is_gone(row) and self._waits_for_a_place()
            return Submission(batch.groups if batch else 0, row.finishing, gone)

        while True:
            ticket = self._notifications.ticket(job_id)
            found: Submission = await self._database.transact(work)
            left = until - time.monotonic()
            if found.groups or found.finishing or found.gone or left <= 0:
                return found
            await self._notifications.wait(ticket, min(left, _POLL_SECONDS))

    async def set_phase(self, job_id: str, phase: str) -> None:
        def work() -> None:
            if job_id in self._database.jobs:
                self._database.jobs[job_id].phase = phase

        await self._write(work)

    async def set_wait(self, job_id: str, reason: str, message: str) -> None:
        def work() -> None:
            if job_id in self._database.jobs:
                row = self._database.jobs[job_id]
                row.wait_reason, row.wait_message = reason, message

        await self._write(work)

    async def add_event(
        self, job_id: str, kind: pb.EventType.ValueType, message: str, step: int = 0
    ) -> None:
        def work() -> None:
            add_event(self._database.any_job(job_id), kind, message, step=step)

        await self._told(job_id, work)

    async def stored_groups(self, job_id: str, step: int, mode: str = "") -> dict[int, StoredGroup]:
        def work() -> dict[int, StoredGroup]:
            row = self._database.jobs.get(job_id)
            return {
                each.position: StoredGroup(
                    each.position, each.status, trajectory_pb2.Group.FromString(each.body)
                )
                for each in (row.groups.values() if row else ())
                if each.step == step
                and each.mode == mode
                and row is not None
                and (mode, step) not in row.deleted_groups
            }

        return await self._database.transact(work)

    async def save_group(self, key: GroupKey, status: str, group: trajectory_pb2.Group) -> None:
        body = group.SerializeToString()
        used = of_groups([group])
        await self._write(lambda: self._store(key, status, group.id, body, used))

    async def save_judged(
        self,
        key: GroupKey,
        group: trajectory_pb2.Group,
        usage: judge_pb.JudgeUsage,
        month: str,
    ) -> None:
        body = group.SerializeToString()
        collected = of_groups([group])
        used = {name: getattr(usage, name) for name in _COUNTS} if usage.ByteSize() else {}

        def work() -> None:
            row = self._database.any_job(key.job_id)
            self._store(key, JUDGED, group.id, body, collected)
            if used:
                counts = row.usage.setdefault(month, dict.fromkeys(_COUNTS, 0))
                for name, amount in used.items():
                    counts[name] += amount
            count_usage(row, of_judges(usage))

        await self._write(work)

    async def judge_usage(self, job_id: str) -> judge_pb.JudgeUsage:
        def work() -> judge_pb.JudgeUsage:
            row = self._database.jobs.get(job_id)
            total: Counter[str] = Counter()
            for counts in row.usage.values() if row else ():
                total.update(counts)  # type: ignore[arg-type]
            return judge_pb.JudgeUsage(**total)  # type: ignore[arg-type]

        return await self._database.transact(work)

    async def project_judge_tokens(self, project: str, month: str) -> int:
        return (await self.judge_tokens(month)).get(project, 0)

    async def judge_tokens(self, month: str) -> dict[str, int]:
        def work() -> dict[str, int]:
            found: Counter[str] = Counter()
            for row in self._database.jobs.values():
                if month in row.usage:
                    used = row.usage[month]
                    found[row.project] += int(used["prompt_tokens"] + used["completion_tokens"])
            return dict(found)

        return await self._database.transact(work)

    async def drop_group(self, key: GroupKey) -> None:
        def work() -> None:
            row = self._database.jobs.get(key.job_id)
            id_ = key.group_id
            found = row.groups.get(id_) if row else None
            if row and found and found.step == key.step and found.status != CONSUMED:
                del row.groups[id_]

        await self._write(work)

    async def drawn(self, job_id: str) -> Drawn | None:
        def work() -> Drawn | None:
            row = self._database.jobs.get(job_id)
            return row.drawn if row else None

        return await self._database.transact(work)

    async def take_groups(
        self, job_id: str, groups: Sequence[trajectory_pb2.Group], drawn: Drawn, *, last: bool
    ) -> None:
        bodies = {each.id: each.SerializeToString() for each in groups}

        def work() -> None:
            row = self._database.any_job(job_id)
            done = row.drawn.step if row.drawn else 0
            if drawn.step != row.completed_steps + 1 or done >= drawn.step:
                raise InternalError(
                    f"job {job_id} has {row.completed_steps} steps and took groups for step"
                    f" {done}; step {drawn.step} cannot take any"
                )
            waiting = [id_ for id_, each in row.groups.items() if _waits(each)]
            for id_ in bodies:
                if id_ not in waiting:
                    raise InternalError(f"group {id_} does not wait for a step")
            for position, (id_, body) in enumerate(bodies.items()):
                row.groups[id_] = GroupRow(drawn.step, "", position, JUDGED, body)
            for id_ in waiting:
                if last and id_ not in bodies:
                    del row.groups[id_]
            row.drawn = drawn

        await self._write(work)

    async def commit_step(
        self, job_id: str, step: pb.Step, coach_events: Sequence[CoachEvent] = ()
    ) -> bool:
        body, number = step.SerializeToString(), step.number

        def work() -> bool:
            row = self._database.any_job(job_id)
            if number <= row.completed_steps:
                return False
            if number != row.completed_steps + 1:
                raise InternalError(
                    f"job {job_id} has {row.completed_steps} steps; step {number} cannot be its"
                    " next"
                )
            row.steps[number] = (step.commit_time.ToNanoseconds(), body)
            for id_ in step.group_ids:
                if id_ in row.groups:
                    row.groups[id_].status = CONSUMED
            row.completed_steps, row.latest_step = number, body
            count_usage(row, of_step(step))
            times = [committed for committed, *_ in row.steps.values()]
            row.step_seconds = seconds_per_step(times, step)
            add_event(row, pb.EVENT_TYPE_STEP, f"step {number} is committed", step=number)
            for each in coach_events:
                add_event(row, each.kind, each.message, step=number)
            return True

        return await self._told(job_id, work)

    async def past(self, job_id: str, steps: int) -> Past:
        def work() -> Past:
            row = self._database.any_job(job_id)
            newest = sorted(row.steps)[-steps:]
            return Past(
                [pb.Step.FromString(row.steps[number][1]) for number in newest],
                [
                    (each.type, each.message)
                    for each in row.events
                    if each.type in COACH_EVENT_TYPES
                ],
            )

        return await self._database.transact(work)

    async def commit_evaluation(self, job_id: str, evaluation: pb.Evaluation) -> None:
        version, mode = evaluation.version, evaluation.mode
        body = evaluation.SerializeToString()

        def work() -> None:
            row = self._database.any_job(job_id)
            if (version, mode) in row.evaluations:
                return
            row.evaluations[version, mode] = body
            for each in row.groups.values():
                if mode and (each.step, each.mode) == (version, mode):
                    each.status = CONSUMED
            text = f"version {version} is evaluated, {mode}"
            add_event(row, pb.EVENT_TYPE_EVALUATION, text, step=version, mode=mode)

        await self._told(job_id, work)

    async def evaluated_modes(self, job_id: str, version: int) -> set[str]:
        def work() -> set[str]:
            row = self._database.jobs.get(job_id)
            return {mode for number, mode in (row.evaluations if row else ()) if number == version}

        return await self._database.transact(work)

    async def state_of(self, job_id: str) -> job_states.State | None:
        def work() -> job_states.State | None:
            row = self._database.jobs.get(job_id)
            return row.state if row else None

        return await self._database.transact(work)

    async def counts(self) -> dict[tuple[str, job_states.State], int]:
        def work() -> dict[tuple[str, job_states.State], int]:
            live = (row for row in self._database.jobs.values() if not row.deleted)
            return dict(Counter((row.project, row.state) for row in live))

        return await self._database.transact(work)

    async def _told(self, job_id: str, work: Callable[[], T]) -> T:
        result = await self._write(work)
        self._notifications.notify(job_id)
        return result

    async def _write(self, work: Callable[[], T]) -> T:
        def fenced() -> T:
            self._database.check_fence(CONTROLLER, self._epoch)
            return work()

        result: T = await self._database.transact(fenced)
        return result

    def _waits_for_a_place(self) -> bool:
        return any(
            row.state == pb.JOB_STATE_QUEUED and not row.deleted and row.wait_reason in PLACES
            for row in self._database.jobs.values()
        )

    def _store(self, key: GroupKey, status: str, id_: str, body: bytes, used: pb.Usage) -> None:
        row = self._database.any_job(key.job_id)
        if (key.mode, key.step) in row.deleted_groups:
            raise InternalError(f"the groups of step {key.step} were deleted to make room")
        groups = row.groups
        if id_ not in groups:
            count_usage(row, used)
            groups[id_] = GroupRow(key.step, key.mode, key.position, status, body)
            return
        before = groups[id_]
        if before.status == CONSUMED or before.step != key.step:
            raise InternalError(
                f"group {id_} of step {before.step} is {before.status} and cannot be stored again"
            )
        groups[id_] = GroupRow(key.step, key.mode, key.position, status, body)


def _waits(row: GroupRow) -> bool:
    return not row.mode and row.step == WAITING_ROOM
