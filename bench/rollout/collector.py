"""A collector that takes every span and keeps none: `python -m bench.rollout.collector PORT`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class _Sink(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != _EXPORT:
            return None
        return grpc.unary_unary_rpc_method_handler(_taken)


async def _taken(request: bytes, context: Any) -> bytes:
    return b""


async def _serve(port: int) -> None:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((_Sink(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
