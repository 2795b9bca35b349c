"""`podium.rollout.v1.RolloutService` of a service with worker processes: who takes the calls.

What a worker answers is handed on as it is, trajectories as bytes and errors with their details.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from podium.core.errors import ResourceExhaustedError
from podium.kit.rpc.details import decode
from podium.kit.rpc.errors import from_rpc
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc

from podium_rollout.adapters.workers import Workers
from podium_rollout.servicer import builtin_environments

_Context = grpc.aio.ServicerContext[Any, Any]
_Collect = grpc.aio.UnaryStreamMultiCallable[bytes, bytes]
_COLLECT = "/podium.rollout.v1.RolloutService/CollectGroup"
_PEER = "the worker process"


class FrontServicer(pb_grpc.RolloutServiceServicer):
    """See the contract for what each method does and how it fails."""

    def __init__(self, workers: Workers, max_groups: int) -> None:
        """`max_groups` at once, of all workers together."""
        self._workers = workers
        self._max_groups = max_groups
        self._running = 0

    async def CollectGroup(  # type: ignore[override]  # bytes, which the kit sends as they are
        self, request: pb.CollectGroupRequest, context: _Context
    ) -> AsyncIterator[bytes]:
        if self._running >= self._max_groups:
            raise ResourceExhaustedError(
                f"{self._max_groups} groups are being collected already", reason="TOO_MANY_GROUPS"
            )
        self._running += 1
        try:
            with self._workers.least_busy(request.attempts) as channel, _as_it_said():
                collect: _Collect = channel.unary_stream(_COLLECT)
                call = collect(request.SerializeToString(), timeout=context.time_remaining())
                try:
                    async for response in call:
                        yield response
                finally:
                    call.cancel()
        finally:
            self._running -= 1

    async def ListScenarios(
        self, request: pb.ListScenariosRequest, context: _Context
    ) -> pb.ListScenariosResponse:
        # An environment's own code lists them, which is not for the process that takes the calls.
        with self._workers.least_busy(1) as channel, _as_it_said():
            stub: pb_grpc.RolloutServiceAsyncStub = pb_grpc.RolloutServiceStub(channel)
            return await stub.ListScenarios(request, timeout=context.time_remaining())

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: _Context
    ) -> pb.ListEnvironmentsResponse:
        return builtin_environments(self._workers.ready)


@contextmanager
def _as_it_said() -> Iterator[None]:
    """Raises what the worker raised, in its own words."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise decode(error) or from_rpc(error, _PEER) from error
