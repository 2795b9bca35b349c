"""SessionService over gRPC: validates, calls the store, maps the result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.jobs.v1 import session_service_pb2 as pb
from podium.jobs.v1 import session_service_pb2_grpc
from podium.kit.rpc.streams import header_and_groups
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.api import submissions
from podium_controller.store import BatchStore, ClientStore, NewBatch

Context = grpc.aio.ServicerContext[Any, Any]


class SessionServicer(session_service_pb2_grpc.SessionServiceServicer):
    """Every replica answers; only the one with the lease trains what it stores."""

    def __init__(self, store: BatchStore, clients: ClientStore, wake: Callable[[], None]) -> None:
        """`wake` tells the scheduler that there is news."""
        self._store = store
        self._clients = clients
        self._wake = wake

    async def SubmitBatch(
        self, request_iterator: AsyncIterator[pb.SubmitBatchRequest], context: Context
    ) -> pb.SubmitBatchResponse:
        """See the proto file."""
        header, groups = await header_and_groups(request_iterator)
        submissions.check(groups)

        def groups_for(spec: spec_pb2.JobSpec, step: int) -> Sequence[trajectory_pb2.Group]:
            return submissions.groups_for(header.job_id, spec, step, groups)

        new = NewBatch(header.job_id, header.request_id, submissions.digest(groups), header.step)
        step = await self._store.submit(new, groups_for)
        self._wake()
        return pb.SubmitBatchResponse(step=step)

    async def FinishJob(
        self, request: pb.FinishJobRequest, context: Context
    ) -> pb.FinishJobResponse:
        """See the proto file."""
        job = await self._store.finish(request.job_id)
        self._wake()
        return pb.FinishJobResponse(job=job)

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """See the proto file."""
        job = await self._clients.beat(request.job_id, request.client, request.seconds)
        if job.state == jobs_pb.JOB_STATE_QUEUED:
            self._wake()
        return pb.HeartbeatResponse(job=job)
