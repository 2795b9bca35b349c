"""The inference pool, as the agent loop sees it."""

from __future__ import annotations

import grpc
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import connect, rpc_errors
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.watched_files import Token

_PEER = "inference"


class InferencePolicy:
    """`Policy` over `podium.inference.v1`."""

    def __init__(
        self, address: str, *, generate_timeout_s: float, token: Token = "", tls: Tls | None = None
    ) -> None:
        """Connects lazily."""
        self._channel: grpc.aio.Channel = connect(address, token=token, tls=tls, direct=True)
        self._stub: pb_grpc.InferenceServiceAsyncStub = pb_grpc.InferenceServiceStub(self._channel)
        self._timeout = generate_timeout_s

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()

    async def generate(self, request: pb.GenerateRequest) -> pb.GenerateResponse:
        """See `Policy`."""
        with rpc_errors(_PEER):
            return await self._stub.Generate(request, timeout=self._timeout)
