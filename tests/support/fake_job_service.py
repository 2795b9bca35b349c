"""The double of the controller: jobs by id, and a watch that can break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from podium.core.contract import apply_defaults
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from podium.core.page_tokens import page_of
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.types.v1 import trajectory_pb2

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass
class FakeJobs(jobs_grpc.JobServiceServicer):
    """The controller's double; tests fill and read its fields."""

    known: dict[str, jobs.Job] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    updates: list[jobs.WatchJobResponse] = field(default_factory=list)
    steps: list[jobs.Step] = field(default_factory=list)
    steps_of: dict[str, list[jobs.Step]] = field(default_factory=dict)
    """Of jobs that have other steps than `steps`."""
    evaluations: list[jobs.Evaluation] = field(default_factory=list)
    trajectories: list[trajectory_pb2.Trajectory] = field(default_factory=list)
    used: list[jobs.UsageRow] = field(default_factory=list)
    budgets: list[jobs.ProjectBudget] = field(default_factory=list)
    deleted: list[jobs.DeletedTrajectories] = field(default_factory=list)
    """Told of the trajectories of training."""
    asked_usage: list[jobs.ListUsageRequest] = field(default_factory=list)
    break_watch_after: list[int] = field(default_factory=list)
    """A watch breaks after the sequence that is first here, which is then taken away."""
    hold_watch: bool = False
    """A watch stays open after the last update, until it is released."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends watches that are held, after the updates that came meanwhile."""
    listed: int | None = None
    """How many events ListEvents knows of, so that a watch has something new; None for all."""
    watched_after: list[int] = field(default_factory=list)
    break_trajectories_after: int | None = None
    """How many trajectories are listed before the controller goes away; None for all."""
    silent: bool = False
    """Nothing is listed, and no answer comes."""
    fail_creates: int = 0
    """Creates to answer with UNAVAILABLE after the job was made."""

    created_state: jobs.JobState.ValueType = jobs.JOB_STATE_QUEUED
    """Of jobs that are created; one that has ended is followed to its end."""
    created_metrics: dict[str, float] = field(default_factory=dict)
    """Of jobs that are created: their last step's."""

    async def CreateJob(
        self, request: jobs.CreateJobRequest, context: Context
    ) -> jobs.CreateJobResponse:
        job_id = self.requests.get(request.request_id) or request.job.id or "job-1"
        job = jobs.Job(id=job_id, spec=request.job.spec, state=self.created_state)
        apply_defaults(job.spec)
        job.latest_metrics.update(self.created_metrics)
        if not request.validate_only:
            if job_id in self.known and self.requests.get(request.request_id) != job_id:
                raise AlreadyExistsError(f"job {job_id} exists")
            self.known.setdefault(job_id, job)
            self.requests[request.request_id] = job_id
            if self.fail_creates:
                self.fail_creates -= 1
                raise UnavailableError("the connection broke")
        return jobs.CreateJobResponse(job=job)

    async def GetJob(self, request: jobs.GetJobRequest, context: Context) -> jobs.GetJobResponse:
        return jobs.GetJobResponse(job=self._job(request.job_id))

    async def ListJobs(
        self, request: jobs.ListJobsRequest, context: Context
    ) -> jobs.ListJobsResponse:
        if self.silent:
            await asyncio.Event().wait()
        # Two a page, whatever was asked for, so that clients must turn pages.
        found = [
            job
            for job in self.known.values()
            if (not request.states or job.state in request.states)
            and request.project in ("", job.spec.project)
        ]
        page, more = page_of(found, 2, request.page_token, [request.project, *request.states])
        return jobs.ListJobsResponse(jobs=page, next_page_token=more)

    async def ListUsage(
        self, request: jobs.ListUsageRequest, context: Context
    ) -> jobs.ListUsageResponse:
        self.asked_usage.append(request)
        page, more = page_of(self.used, 1, request.page_token, [request.project])
        budgets = [] if request.page_token else self.budgets
        return jobs.ListUsageResponse(rows=page, next_page_token=more, budgets=budgets)

    async def CancelJob(
        self, request: jobs.CancelJobRequest, context: Context
    ) -> jobs.CancelJobResponse:
        job = self._job(request.job_id)
        if job.state in (jobs.JOB_STATE_SUCCEEDED, jobs.JOB_STATE_FAILED):
            raise FailedPreconditionError(f"job {job.id} has ended", reason="JOB_ENDED")
        job.state = jobs.JOB_STATE_CANCELLING
        return jobs.CancelJobResponse(job=job)

    async def PauseJob(
        self, request: jobs.PauseJobRequest, context: Context
    ) -> jobs.PauseJobResponse:
        job = self._job(request.job_id)
        job.state = jobs.JOB_STATE_PAUSING
        return jobs.PauseJobResponse(job=job)

    async def ResumeJob(
        self, request: jobs.ResumeJobRequest, context: Context
    ) -> jobs.ResumeJobResponse:
        job = self._job(request.job_id)
        job.state = jobs.JOB_STATE_QUEUED
        if request.HasField("budget"):
            job.spec.budget.CopyFrom(request.budget)
        return jobs.ResumeJobResponse(job=job)

    async def DeleteJob(
        self, request: jobs.DeleteJobRequest, context: Context
    ) -> jobs.DeleteJobResponse:
        self._job(request.job_id)
        del self.known[request.job_id]
        return jobs.DeleteJobResponse()

    async def WatchJob(
        self, request: jobs.WatchJobRequest, context: Context
    ) -> AsyncIterator[jobs.WatchJobResponse]:
        self._job(request.job_id)
        self.watched_after.append(request.after_sequence)
        for update in self.updates:
            if update.event.sequence <= request.after_sequence:
                continue
            yield update
            if self.break_watch_after and update.event.sequence == self.break_watch_after[0]:
                self.break_watch_after.pop(0)
                raise UnavailableError("draining")
        if self.hold_watch:
            shown = len(self.updates)
            await self.released.wait()
            for update in self.updates[shown:]:
                yield update

    async def ListEvents(
        self, request: jobs.ListEventsRequest, context: Context
    ) -> jobs.ListEventsResponse:
        self._job(request.job_id)
        events = [update.event for update in self.updates]
        return jobs.ListEventsResponse(events=events[: self.listed])

    async def ListSteps(
        self, request: jobs.ListStepsRequest, context: Context
    ) -> jobs.ListStepsResponse:
        self._job(request.job_id)
        return jobs.ListStepsResponse(steps=self.steps_of.get(request.job_id, self.steps))

    async def ListEvaluations(
        self, request: jobs.ListEvaluationsRequest, context: Context
    ) -> jobs.ListEvaluationsResponse:
        self._job(request.job_id)
        return jobs.ListEvaluationsResponse(evaluations=self.evaluations)

    async def ListTrajectories(
        self, request: jobs.ListTrajectoriesRequest, context: Context
    ) -> jobs.ListTrajectoriesResponse:
        self._job(request.job_id)
        kind = "v" if request.evaluation else "s"
        end = "-" if request.evaluation else "/"
        part = f"/{kind}{request.step}{end}" if request.HasField("step") else f"/{kind}"
        found = [item for item in self.trajectories if part in item.id]
        asked = [request.step, request.evaluation]
        page, more = page_of(found, request.page_size or 50, request.page_token, asked)
        if self.break_trajectories_after is not None:
            self.break_trajectories_after -= len(page)
            if self.break_trajectories_after < 0:
                raise UnavailableError("draining")
        deleted = [] if request.page_token or request.evaluation else self.deleted
        return jobs.ListTrajectoriesResponse(
            trajectories=page, next_page_token=more, deleted=deleted
        )

    def _job(self, job_id: str) -> jobs.Job:
        if job_id not in self.known:
            raise NotFoundError(f"there is no job {job_id!r}")
        return self.known[job_id]


def watched_job(job: jobs.Job, count: int = 3) -> list[jobs.WatchJobResponse]:
    """A short life: running, `count` steps, an evaluation, the end."""
    from support import job_records

    updates: list[jobs.WatchJobResponse] = []

    def add(kind: jobs.EventType.ValueType, message: str) -> jobs.WatchJobResponse:
        update = jobs.WatchJobResponse(job=job)
        update.event.sequence = len(updates) + 1
        update.event.type = kind
        update.event.message = message
        update.event.time.seconds = job_records.START + len(updates)
        updates.append(update)
        return update

    add(jobs.EVENT_TYPE_STATE, "running")
    for step in job_records.steps(count):
        add(jobs.EVENT_TYPE_STEP, f"step {step.number}").step.CopyFrom(step)
    last = add(jobs.EVENT_TYPE_EVALUATION, "evaluated")
    last.evaluation.CopyFrom(job_records.evaluations()[2])
    add(jobs.EVENT_TYPE_STATE, jobs.JobState.Name(job.state).removeprefix("JOB_STATE_").lower())
    return updates
