"""Client-driven training: SessionService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from podium.jobs.v1 import job_service_pb2, session_service_pb2_grpc
from podium.jobs.v1 import session_service_pb2 as pb
from podium.kit.rpc import retry_unavailable
from podium.sdk.connection.failures import failures
from podium.sdk.heartbeats import Heartbeats
from podium.types.v1 import trajectory_pb2

if TYPE_CHECKING:
    import grpc

_SUBMIT_SECONDS = 300.0
_RETRY_SECONDS = 600.0


class Sessions:
    """SessionService.

    Every method raises `UnavailableError` while the controller cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(
        self,
        channel: Callable[[], grpc.aio.Channel],
        blocking: Callable[[], Awaitable[tuple[grpc.Channel, str]]],
        place: str = "",
    ) -> None:
        """`blocking` makes a channel for a thread, and says its token."""
        self._channel = channel
        self._failures = failures("controller", place)
        self._blocking = blocking
        self._heartbeats: Heartbeats | None = None

    @property
    def _stub(self) -> session_service_pb2_grpc.SessionServiceAsyncStub:
        return session_service_pb2_grpc.SessionServiceStub(self._channel())

    async def submit(
        self,
        job_id: str,
        groups: Sequence[trajectory_pb2.Group],
        *,
        request_id: str,
        step: int | None = None,
    ) -> int:
        """Gives a job its next step's groups, once, however often the connection is lost.

        Args:
            job_id: a job that a client drives.
            groups: of the step, with their rewards.
            request_id: the same one with the same groups is the same step.
            step: which one it is to be, from 1; None for whichever is next.

        Returns:
            The step.

        Raises:
            NotFoundError: there is no such job.
            InvalidArgumentError: there is no group, or a token record is inconsistent.
            AlreadyExistsError: `request_id` was used with other groups.
            FailedPreconditionError: NOT_CLIENT_DRIVEN; JOB_ENDED, JOB_FINISHING or NO_STEP_LEFT;
                BATCH_PENDING, batches still have to be trained; WRONG_STEP; STALE_BATCH, the
                tokens are of another policy or too old a version.
            UnavailableError: the controller stayed away for ten minutes.
        """

        async def messages() -> AsyncIterator[pb.SubmitBatchRequest]:
            header = pb.BatchHeader(job_id=job_id, request_id=request_id, step=step)
            yield pb.SubmitBatchRequest(header=header)
            for group in groups:
                yield pb.SubmitBatchRequest(group=group)

        async def once() -> int:
            with self._failures():
                return (await self._stub.SubmitBatch(messages(), timeout=_SUBMIT_SECONDS)).step

        return await retry_unavailable(once, timeout_s=_RETRY_SECONDS)

    async def drive(self, job_id: str) -> None:
        """Says from now on, until `close` or the end of the process, that the job's client lives.

        Of one that falls silent the controller gives the job's place away to one that waits.

        Args:
            job_id: a job that a client drives.

        Raises:
            PodiumError: no channel to the controller can be made, such as one through kubectl.
        """
        if self._heartbeats is None:
            self._heartbeats = Heartbeats(*await self._blocking())
        self._heartbeats.begin(job_id)

    async def close(self) -> None:
        """Takes leave of the jobs that this client drove. Idempotent."""
        heartbeats, self._heartbeats = self._heartbeats, None
        if heartbeats is not None:
            await asyncio.to_thread(heartbeats.close)

    async def finish(self, job_id: str) -> job_service_pb2.Job:
        """Ends a job as succeeded once it has trained what it has. Again it is no error.

        Args:
            job_id: a job that a client drives.

        Raises:
            NotFoundError: there is no such job.
            FailedPreconditionError: NOT_CLIENT_DRIVEN; JOB_ENDED, it has failed or was cancelled.
        """
        with self._failures():
            return (await self._stub.FinishJob(pb.FinishJobRequest(job_id=job_id))).job
