"""Asks a service's health port whether it serves."""

from __future__ import annotations

import asyncio
import time

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from podium.kit.rpc.client_config import DIRECT


async def check(address: str, service: str, within: float = 2.0) -> str:
    """`SERVING`, `NOT_SERVING`, … as the health protocol names them, or `UNREACHABLE`.

    `service` is a gRPC service's full name.
    """
    async with grpc.aio.insecure_channel(address, [DIRECT]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(
                health_pb2.HealthCheckRequest(service=service), timeout=within
            )
        except grpc.aio.AioRpcError:
            return "UNREACHABLE"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def wait_serving(address: str, service: str, within: float, interval: float = 0.2) -> bool:
    """Waits until the service serves; False when it does not `within` that many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if await check(address, service) == "SERVING":
            return True
        await asyncio.sleep(interval)
    return False
