"""JobService over gRPC: validates, calls the store, maps the result."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    Violation,
)
from podium.core.job_environments import title_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2_grpc
from podium.types.v1 import spec_pb2

from podium_controller.api import paging
from podium_controller.api.admission import Admission
from podium_controller.api.project_budgets import ProjectBudgets
from podium_controller.api.specification import complete, violations
from podium_controller.domain import job_states
from podium_controller.domain.budget import (
    BUDGET_EXHAUSTED,
    JUDGE_COST,
    budget_violations,
    exhausted,
)
from podium_controller.domain.identifiers import new_job_id
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.timestamps import now_ns, timestamp
from podium_controller.domain.usage import price
from podium_controller.store import JobStore, UsageStore
from podium_controller.store.jobs import NewJob
from podium_controller.store.usage import Within
from podium_controller.training.reporter import COLLECT, RECOVER

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT_PAGE = 100
_DEFAULT_TRAJECTORIES = 50
# A page must pass every message limit on its way.
_PAGE_BYTES = 16 * 1024 * 1024
_WATCH_PAGE = 200
_ID_ATTEMPTS = 5


class JobServicer(job_service_pb2_grpc.JobServiceServicer):
    """Every replica answers; only the one with the lease runs jobs."""

    def __init__(
        self,
        store: JobStore,
        admission: Admission,
        notifications: Notifications,
        wake: Callable[[], None],
        poll_seconds: float,
        episodes_running: Callable[[str], int | None],
        usage: UsageStore,
        gpu_hour_price: float,
        budgets: ProjectBudgets,
    ) -> None:
        """Makes the service.

        Args:
            wake: tells the scheduler that there is news.
            episodes_running: of a job; None when it does not run here.
            gpu_hour_price: 0 for none.
        """
        self._store = store
        self._admission = admission
        self._notifications = notifications
        self._wake = wake
        self._poll_seconds = poll_seconds
        self._episodes_running = episodes_running
        self._usage = usage
        self._gpu_hour_price = gpu_hour_price
        self._budgets = budgets

    async def CreateJob(
        self, request: pb.CreateJobRequest, context: Context
    ) -> pb.CreateJobResponse:
        """See the proto file."""
        digest = _digest(request.job)
        if not request.validate_only:
            made = await self._store.find_request(request.request_id, digest)
            if made is not None:
                return pb.CreateJobResponse(job=made)
        draft = pb.Job(id=request.job.id, spec=complete(request.job.spec))
        await self._check(draft, is_draft=request.validate_only)
        spec = draft.spec
        warnings = self._admission.warnings(spec)
        if request.validate_only:
            job = pb.Job(
                id=request.job.id or new_job_id(title_of(spec)),
                spec=spec,
                state=pb.JOB_STATE_QUEUED,
                create_time=timestamp(now_ns()),
            )
            return pb.CreateJobResponse(job=job, warnings=warnings)
        for attempt in range(1, _ID_ATTEMPTS + 1):
            job_id = request.job.id or new_job_id(title_of(spec))
            try:
                job = await self._store.create(
                    NewJob(job_id, spec, request.request_id, digest, _trace_parent(), warnings)
                )
                break
            except AlreadyExistsError as error:
                taken = error.reason == "JOB_EXISTS" and not request.job.id
                if not taken or attempt == _ID_ATTEMPTS:
                    raise
        self._wake()
        return pb.CreateJobResponse(job=job, warnings=warnings)

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        """See the proto file."""
        job = await self._store.get(request.job_id)
        price(job.usage, self._gpu_hour_price)
        await self._tell_episodes(job)
        return pb.GetJobResponse(job=job)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int])
        jobs, before = await self._store.page(
            list(request.states),
            int(cursor[0]) if cursor else None,
            request.page_size or _DEFAULT_PAGE,
            project=request.project,
        )
        for job in jobs:
            price(job.usage, self._gpu_hour_price)
        token = paging.encode(request, [before]) if before is not None else ""
        return pb.ListJobsResponse(jobs=jobs, next_page_token=token)

    async def CancelJob(
        self, request: pb.CancelJobRequest, context: Context
    ) -> pb.CancelJobResponse:
        """See the proto file."""
        job = await self._request(request.job_id, job_states.after_cancel)
        return pb.CancelJobResponse(job=job)

    async def PauseJob(self, request: pb.PauseJobRequest, context: Context) -> pb.PauseJobResponse:
        """See the proto file."""
        return pb.PauseJobResponse(job=await self._request(request.job_id, job_states.after_pause))

    async def ResumeJob(
        self, request: pb.ResumeJobRequest, context: Context
    ) -> pb.ResumeJobResponse:
        """See the proto file."""
        budget = request.budget if request.HasField("budget") else None
        job = await self._store.get(request.job_id)
        if budget is not None:
            await self._check_budget(job, budget)
        spent = exhausted(budget or job.spec.budget, job.usage)
        if spent and job.wait_reason == BUDGET_EXHAUSTED:
            raise FailedPreconditionError(
                f"job {job.id} has used what it may: {spent}; resume it with a greater budget",
                reason=BUDGET_EXHAUSTED,
                metadata={"job_id": job.id},
            )
        job = await self._request(request.job_id, job_states.after_resume, budget)
        return pb.ResumeJobResponse(job=job)

    async def DeleteJob(
        self, request: pb.DeleteJobRequest, context: Context
    ) -> pb.DeleteJobResponse:
        """See the proto file."""
        await self._store.delete(request.job_id)
        return pb.DeleteJobResponse()

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: Context
    ) -> AsyncIterator[pb.WatchJobResponse]:
        """See the proto file."""
        after = request.after_sequence
        while True:
            ticket = self._notifications.ticket(request.job_id)
            updates, over = await self._store.updates(request.job_id, after, _WATCH_PAGE)
            for update in updates:
                yield update
                after = update.event.sequence
            if over:
                return
            if len(updates) < _WATCH_PAGE:
                await self._notifications.wait(ticket, self._poll_seconds)

    async def _tell_episodes(self, job: pb.Job) -> None:
        running = self._episodes_running(job.id)
        # Its run here ends a moment after the job.
        if running is None or job.state in job_states.ENDED:
            return
        job.episodes_running = running
        if job.phase not in (COLLECT, RECOVER) or job.spec.HasField("client"):
            return
        collected = await self._store.groups_collected(job.id, job.completed_steps + 1)
        rollout = job.spec.rollout
        left = (rollout.groups_per_step - collected) * rollout.group_size
        job.groups_collected = collected
        job.episodes_waiting = max(0, left - running)

    async def ListEvents(
        self, request: pb.ListEventsRequest, context: Context
    ) -> pb.ListEventsResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int])
        events, more = await self._store.events(
            request.job_id, int(cursor[0]) if cursor else 0, request.page_size or _DEFAULT_PAGE
        )
        token = paging.encode(request, [events[-1].sequence]) if more else ""
        return pb.ListEventsResponse(events=events, next_page_token=token)

    async def ListSteps(
        self, request: pb.ListStepsRequest, context: Context
    ) -> pb.ListStepsResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int])
        steps, more = await self._store.steps(
            request.job_id, int(cursor[0]) if cursor else 0, request.page_size or _DEFAULT_PAGE
        )
        token = paging.encode(request, [steps[-1].number]) if more else ""
        return pb.ListStepsResponse(steps=steps, next_page_token=token)

    async def ListEvaluations(
        self, request: pb.ListEvaluationsRequest, context: Context
    ) -> pb.ListEvaluationsResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int, str])
        evaluations, more = await self._store.evaluations(
            request.job_id,
            (int(cursor[0]), str(cursor[1])) if cursor else None,
            request.page_size or _DEFAULT_PAGE,
        )
        last = evaluations[-1] if more else None
        token = paging.encode(request, [last.version, last.mode]) if last else ""
        return pb.ListEvaluationsResponse(evaluations=evaluations, next_page_token=token)

    async def ListTrajectories(
        self, request: pb.ListTrajectoriesRequest, context: Context
    ) -> pb.ListTrajectoriesResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int, str, int, int])
        trajectories, last = await self._store.trajectories(
            request.job_id,
            evaluation=request.evaluation,
            step=request.step if request.HasField("step") else None,
            after=(int(cursor[0]), str(cursor[1]), int(cursor[2]), int(cursor[3]))
            if cursor
            else None,
            limit=request.page_size or _DEFAULT_TRAJECTORIES,
            max_bytes=_PAGE_BYTES,
        )
        token = paging.encode(request, last) if last else ""
        response = pb.ListTrajectoriesResponse(trajectories=trajectories, next_page_token=token)
        if not cursor:
            response.deleted.extend(
                await self._store.deleted_trajectories(
                    request.job_id,
                    evaluation=request.evaluation,
                    step=request.step if request.HasField("step") else None,
                )
            )
        return response

    async def ListUsage(
        self, request: pb.ListUsageRequest, context: Context
    ) -> pb.ListUsageResponse:
        """See the proto file."""
        start = request.start_time.seconds if request.HasField("start_time") else None
        end = request.end_time.seconds if request.HasField("end_time") else None
        if start is not None and end is not None and end < start:
            text = f"got {end} seconds since the epoch; must not be before start_time, {start}"
            raise InvalidArgumentError(violations=[Violation("end_time", text)])
        within = Within(request.project, start, end)
        size = request.page_size or _DEFAULT_PAGE
        last: int | str | None
        if request.by_project:
            names = paging.decode(request, [str])
            rows, last = await self._usage.by_project(within, str(names[0]) if names else "", size)
        else:
            cursor = paging.decode(request, [int])
            rows, last = await self._usage.by_job(within, int(cursor[0]) if cursor else None, size)
        for row in rows:
            price(row.usage, self._gpu_hour_price)
        token = paging.encode(request, [last]) if last is not None else ""
        budgets = [] if request.page_token else await self._budgets.of(request.project)
        return pb.ListUsageResponse(rows=rows, next_page_token=token, budgets=budgets)

    async def _check(self, job: pb.Job, *, is_draft: bool) -> None:
        """Everything that can be wrong with a job, at once; a draft waits for no service.

        Raises:
            InvalidArgumentError: with every violation.
            AlreadyExistsError: the id is taken.
            FailedPreconditionError: no pool serves the base model.
        """
        found = violations(job) + self._admission.check_project(job.spec)
        results = await asyncio.gather(
            self._admission.check_environment(job.spec, may_wait=not is_draft),
            self._admission.check_model(job.spec),
            self._admission.check_judge(job.spec),
            self._admission.check_fork(job.spec),
            self._admission.check_teacher(job.spec),
            self._admission.check_trainer(job.spec),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, list):
                found += [violation for violation in result if violation not in found]
        if found:
            raise InvalidArgumentError(violations=found, reason="INVALID_JOB")
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if job.id:
            if await self._store.is_taken(job.id):
                raise AlreadyExistsError(
                    f"a job with the id {job.id!r} exists, or existed",
                    reason="JOB_EXISTS",
                    metadata={"job_id": job.id},
                )
            await self._admission.check_name(job.id)

    async def _check_budget(self, job: pb.Job, budget: spec_pb2.BudgetSpec) -> None:
        found = budget_violations(job.spec, budget, "budget")
        if not found and budget.HasField("max_judge_cost"):
            job.spec.budget.CopyFrom(budget)
            told = await self._admission.check_judge(job.spec, JUDGE_COST)
            # What else a judge has against the job no budget mends, and it goes on without one.
            found = [violation for violation in told if violation.field == JUDGE_COST]
        if found:
            raise InvalidArgumentError(violations=found, reason="INVALID_BUDGET")

    async def _request(
        self,
        job_id: str,
        after: Callable[[job_states.State], job_states.State],
        budget: spec_pb2.BudgetSpec | None = None,
    ) -> pb.Job:
        job = await self._store.request(job_id, after, budget)
        self._wake()
        return job


def _digest(job: pb.Job) -> str:
    """Of the part of the body that a client writes."""
    body = pb.Job(id=job.id, spec=job.spec)
    return hashlib.sha256(body.SerializeToString(deterministic=True)).hexdigest()


def _trace_parent() -> str:
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")
