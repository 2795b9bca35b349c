"""The environments that the rollout service has built in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc
from podium.rpc import rpc_errors

if TYPE_CHECKING:
    import grpc


class Environments:
    """What jobs can train on, besides remote environments."""

    def __init__(self, channel: Callable[[], grpc.aio.Channel]) -> None:
        self._channel = channel

    async def list(self) -> Sequence[pb.EnvironmentInfo]:
        """The built-in environments."""
        stub: pb_grpc.RolloutServiceAsyncStub = pb_grpc.RolloutServiceStub(self._channel())
        with rpc_errors("rollout"):
            response = await stub.ListEnvironments(pb.ListEnvironmentsRequest())
        return list(response.environments)
