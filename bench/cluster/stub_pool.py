"""A stub of the inference service: `python -m bench.cluster.stub_pool PORT`.

It says which model it serves, and to many jobs at once: what admission asks, and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc

BASE_MODEL = "bench"


class StubPool(pb_grpc.InferenceServiceServicer):
    """GetEngine alone."""

    async def GetEngine(self, request: pb.GetEngineRequest, _: Any) -> pb.GetEngineResponse:  # noqa: N802
        return pb.GetEngineResponse(
            base_model=BASE_MODEL, max_model_len=4096, weight_mode=pb.WEIGHT_MODE_ADAPTER
        )


async def main() -> None:
    """Serves until it is killed."""
    server = grpc.aio.server()
    pool = StubPool()  # type: ignore[abstract]
    pb_grpc.add_InferenceServiceServicer_to_server(pool, server)
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
