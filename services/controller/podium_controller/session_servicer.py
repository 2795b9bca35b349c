"""SessionService over gRPC: validates, calls the store, maps the result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
from podium.core.errors import InvalidArgumentError, Violation
from podium.jobs.v1 import session_service_pb2 as pb
from podium.jobs.v1 import session_service_pb2_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller import submissions
from podium_controller.store import BatchStore, NewBatch

Context = grpc.aio.ServicerContext[Any, Any]


class SessionServicer(session_service_pb2_grpc.SessionServiceServicer):
    """Every replica answers; only the one with the lease trains what it stores."""

    def __init__(self, store: BatchStore, wake: Callable[[], None]) -> None:
        """`wake` tells the scheduler that there is news."""
        self._store = store
        self._wake = wake

    async def SubmitBatch(
        self, request_iterator: AsyncIterator[pb.SubmitBatchRequest], context: Context
    ) -> pb.SubmitBatchResponse:
        """See the proto file."""
        header, groups = await _read(request_iterator)
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


async def _read(
    requests: AsyncIterator[pb.SubmitBatchRequest],
) -> tuple[pb.BatchHeader, list[trajectory_pb2.Group]]:
    header: pb.BatchHeader | None = None
    groups: list[trajectory_pb2.Group] = []
    async for request in requests:
        kind = request.WhichOneof("item")
        if header is None and kind == "header":
            header = request.header
        elif header is not None and kind == "group":
            groups.append(request.group)
        else:
            wanted = "a group" if header else "the header first"
            raise _wrong_order(f"got {kind or 'nothing'}; allowed is {wanted}")
    if header is None:
        raise _wrong_order("got an empty stream; allowed is the header first, then groups")
    return header, groups


def _wrong_order(description: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation("item", description)])
