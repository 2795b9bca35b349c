"""Jobs: create, read, steer, watch."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from podium.core.backoff import Backoff
from podium.core.contract import fork_alias
from podium.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    UnavailableError,
    Violation,
)
from podium.core.specs.generated import BudgetSpec
from podium.core.specs.sources import JobSource, message_of, read_job
from podium.jobs.v1 import job_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2_grpc as pb_grpc
from podium.sdk.connection.failures import failures
from podium.sdk.paging import pages
from podium.types.v1 import spec_pb2, trajectory_pb2

if TYPE_CHECKING:
    import grpc

    from podium.core.policy_names import VersionOf

logger = logging.getLogger(__name__)

TERMINAL = frozenset({pb.JOB_STATE_SUCCEEDED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED})
"""States that a job never leaves."""

_CREATE_ATTEMPTS = 4
_FIRST_DELAY, _LONGEST_DELAY = 0.25, 5.0
_PAGE = 500


class Jobs:
    """JobService.

    Every method raises `UnavailableError` while the controller cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        place: str = "",
        version_of: VersionOf | None = None,
    ) -> None:
        """`version_of` looks up the alias of a fork; without it a spec names a version."""
        self._channel = channel
        self._version_of = version_of
        self._failures = failures("controller", place)

    @property
    def _stub(self) -> pb_grpc.JobServiceAsyncStub:
        return pb_grpc.JobServiceStub(self._channel())

    async def create(
        self,
        spec: JobSource,
        *,
        job_id: str = "",
        request_id: str = "",
        validate_only: bool = False,
    ) -> pb.Job:
        """Creates a job, once: a lost connection is repeated under the same `request_id`.

        What the controller warns of is logged.

        Args:
            spec: a `podium.JobSpec`, its message, a dict, or the path of a job file. A fork's
                version may be an alias of its model, such as `best`, but in a message.
            job_id: its id; empty lets the server choose.
            request_id: the same one with the same spec is the same job; made up when empty.
            validate_only: nothing is created; the job is returned with every default filled in.

        Raises:
            InvalidArgumentError: what is wrong with the spec, each by its path.
            OSError: the file cannot be read.
            NotFoundError: there is no such alias.
            AlreadyExistsError: another job has this id, or `request_id` was used for another spec.
            FailedPreconditionError: BASE_MODEL_NOT_SERVED, no pool serves the base model.
            UnavailableError: the controller cannot be reached, or no pool of the base model
                answers.
        """
        message = await self._message(spec)
        request = pb.CreateJobRequest(
            job=pb.Job(id=job_id, spec=message),
            request_id=request_id or uuid.uuid4().hex,
            validate_only=validate_only,
        )
        backoff = Backoff(_FIRST_DELAY, _LONGEST_DELAY)
        for attempt in range(1, _CREATE_ATTEMPTS + 1):
            try:
                with self._failures():
                    response = await self._stub.CreateJob(request)
                for warning in response.warnings:
                    logger.warning("%s", warning)
                return response.job
            except UnavailableError:
                if attempt == _CREATE_ATTEMPTS:
                    raise
                await asyncio.sleep(backoff.next())
        raise AssertionError("unreachable")

    async def _message(self, source: JobSource) -> spec_pb2.JobSpec:
        message, _, alias = read_job(source)
        if alias:
            if self._version_of is None:
                text = f"got {alias!r}; without a registry to look it up, allowed is a number"
                raise InvalidArgumentError(violations=[Violation(fork_alias.KEY, text)])
            await fork_alias.resolve(message, alias, self._version_of)
        return message

    async def get(self, job_id: str) -> pb.Job:
        """Reads a job.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there is no such job.
        """
        with self._failures():
            return (await self._stub.GetJob(pb.GetJobRequest(job_id=job_id))).job

    async def cancel(self, job_id: str) -> pb.Job:
        """Asks a job to stop for good; its checkpoints stay. Again it is no error.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: it has succeeded or failed.
        """
        with self._failures():
            return (await self._stub.CancelJob(pb.CancelJobRequest(job_id=job_id))).job

    async def pause(self, job_id: str) -> pb.Job:
        """Asks a job to stop after the step that it is in.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: it has ended.
        """
        with self._failures():
            return (await self._stub.PauseJob(pb.PauseJobRequest(job_id=job_id))).job

    async def resume(
        self,
        job_id: str,
        *,
        budget: spec_pb2.BudgetSpec | BudgetSpec | Mapping[str, Any] | None = None,
    ) -> pb.Job:
        """Lets a paused job go on after its last step.

        Args:
            job_id: its id.
            budget: what it may use from now on, in all; None for what it had.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: it has ended; or it has used its budget up, and no other is
                given.
            InvalidArgumentError: what is wrong with the budget.
        """
        given = None if budget is None else message_of(budget, spec_pb2.BudgetSpec)
        request = pb.ResumeJobRequest(job_id=job_id, budget=given)
        with self._failures():
            return (await self._stub.ResumeJob(request)).job

    async def delete(self, job_id: str) -> None:
        """Deletes a job that has ended; its checkpoints stay.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there never was such a job.
            FailedPreconditionError: it has not ended.
        """
        with self._failures():
            await self._stub.DeleteJob(pb.DeleteJobRequest(job_id=job_id))

    async def list(
        self, states: Sequence[pb.JobState.ValueType] = (), *, project: str = ""
    ) -> AsyncGenerator[pb.Job, None]:
        """Jobs, newest first.

        Args:
            states: only those in one of these, such as `JOB_STATE_RUNNING`; empty for all.
            project: only those of this one; empty for all.
        """
        request = pb.ListJobsRequest(states=states, project=project, page_size=_PAGE)
        with self._failures():
            async for job in pages(self._stub.ListJobs, request, lambda r: r.jobs):
                yield job

    async def usage(
        self,
        *,
        project: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        by_project: bool = False,
    ) -> AsyncGenerator[pb.UsageRow, None]:
        """What jobs have used, newest first, or what projects have; deleted jobs' too.

        Args:
            project: only of this one; empty for all.
            since: only of the hour in which this lies and later.
            until: only before this, to the end of its hour.
            by_project: a row a project, in place of a job.
        """
        request = pb.ListUsageRequest(project=project, by_project=by_project, page_size=_PAGE)
        if since is not None:
            request.start_time.FromDatetime(since)
        if until is not None:
            request.end_time.FromDatetime(until)
        with self._failures():
            async for row in pages(self._stub.ListUsage, request, lambda r: r.rows):
                yield row

    async def budgets(self, *, project: str = "") -> Sequence[pb.ProjectBudget]:
        """Projects that have a budget of a month, by name, and what they have used of it.

        Args:
            project: only this one; empty for all.
        """
        request = pb.ListUsageRequest(project=project, by_project=True, page_size=1)
        with self._failures():
            return (await self._stub.ListUsage(request)).budgets

    async def events(self, job_id: str) -> AsyncGenerator[pb.Event, None]:
        """A job's events so far, oldest first.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there is no such job.
        """
        request = pb.ListEventsRequest(job_id=job_id, page_size=_PAGE)
        with self._failures():
            async for event in pages(self._stub.ListEvents, request, lambda r: r.events):
                yield event

    async def steps(self, job_id: str) -> AsyncGenerator[pb.Step, None]:
        """A job's committed steps, oldest first.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there is no such job.
        """
        request = pb.ListStepsRequest(job_id=job_id, page_size=_PAGE)
        with self._failures():
            async for step in pages(self._stub.ListSteps, request, lambda r: r.steps):
                yield step

    async def evaluations(self, job_id: str) -> AsyncGenerator[pb.Evaluation, None]:
        """A job's evaluations, oldest first.

        Args:
            job_id: its id.

        Raises:
            NotFoundError: there is no such job.
        """
        request = pb.ListEvaluationsRequest(job_id=job_id, page_size=_PAGE)
        with self._failures():
            async for item in pages(self._stub.ListEvaluations, request, lambda r: r.evaluations):
                yield item

    async def trajectories(
        self, job_id: str, *, step: int | None = None, evaluation: bool = False
    ) -> AsyncGenerator[trajectory_pb2.Trajectory, None]:
        """A job's trajectories: all, one training step's, or one evaluated version's.

        Args:
            job_id: its id.
            step: of this training step, from 1, or with `evaluation` of this version; None for
                all.
            evaluation: those of evaluations, in place of training.

        Raises:
            NotFoundError: there is no such job.
        """
        # Token records make a trajectory large: small pages stay within a message's limit.
        request = pb.ListTrajectoriesRequest(
            job_id=job_id, step=step, evaluation=evaluation, page_size=50
        )
        with self._failures():
            async for item in pages(self._stub.ListTrajectories, request, lambda r: r.trajectories):
                yield item

    async def deleted_trajectories(
        self, job_id: str, *, step: int | None = None, evaluation: bool = False
    ) -> Sequence[pb.DeletedTrajectories]:
        """What `trajectories` would have listed besides, and was deleted to make room.

        Args:
            job_id, step, evaluation: as those of `trajectories`.

        Raises:
            NotFoundError: there is no such job.
        """
        request = pb.ListTrajectoriesRequest(
            job_id=job_id, step=step, evaluation=evaluation, page_size=1
        )
        with self._failures():
            return (await self._stub.ListTrajectories(request)).deleted

    async def watch(
        self,
        job_id: str,
        *,
        after_sequence: int = 0,
        reconnect_seconds: float = 600.0,
        on_reconnect: Callable[[UnavailableError, float], None] | None = None,
    ) -> AsyncGenerator[pb.WatchJobResponse, None]:
        """A job's events after a sequence number, until the one that ends the job.

        A lost connection is opened again after the last sequence seen.

        Args:
            job_id: its id.
            after_sequence: the event that was seen last; 0 for all from the first.
            reconnect_seconds: how long at most it may go on without any event.
            on_reconnect: told the error, and the pause in seconds before the next try.

        Raises:
            NotFoundError: there is no such job.
            OutOfRangeError: `after_sequence` lies in the future.
            UnavailableError: the controller stayed away for longer.
        """
        backoff, lost_since = Backoff(_FIRST_DELAY, _LONGEST_DELAY), 0.0
        while True:
            call = self._stub.WatchJob(
                pb.WatchJobRequest(job_id=job_id, after_sequence=after_sequence)
            )
            try:
                with self._failures():
                    async for update in call:
                        backoff.reset()
                        lost_since = 0.0
                        after_sequence = update.event.sequence
                        yield update
                # A server that drains may close a stream of a job that goes on.
                if (await self.get(job_id)).state in TERMINAL:
                    return
                raise UnavailableError("the controller closed the stream")
            except UnavailableError as error:
                now = time.monotonic()
                lost_since = lost_since or now
                if now - lost_since > reconnect_seconds:
                    raise
                delay = backoff.next()
                if on_reconnect is not None:
                    on_reconnect(error, delay)
            finally:
                call.cancel()
            await asyncio.sleep(delay)

    async def wait(self, job_id: str, *, within: float | None = None) -> pb.Job:
        """Waits until a job has ended and returns it, however it ended.

        Args:
            job_id: its id.
            within: seconds at most; None for as long as it takes.

        Raises:
            NotFoundError: there is no such job.
            DeadlineExceededError: WAIT_TIMEOUT, it has not ended `within` that many seconds.
            UnavailableError: the controller stayed away for ten minutes.
        """
        try:
            async with asyncio.timeout(within):
                async for _ in self.watch(job_id):
                    continue
                return await self.get(job_id)
        except TimeoutError:
            raise DeadlineExceededError(
                f"job {job_id} has not ended after {within:g} seconds", reason="WAIT_TIMEOUT"
            ) from None
