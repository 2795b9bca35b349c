"""`python -m podium.probe HOST:PORT [SERVICE]`: an exec probe that asks a health port.

Light, because a kubelet starts it every few seconds.
"""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SECONDS = 8.0


def main(arguments: list[str]) -> int:
    """0 when the service serves, 1 when it does not, 2 when the arguments are wrong."""
    if len(arguments) not in (1, 2):
        print("usage: python -m podium.probe HOST:PORT [SERVICE]", file=sys.stderr)
        return 2
    address, service = arguments[0], arguments[1] if len(arguments) == 2 else ""
    with grpc.insecure_channel(address) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            print(f"{address}: {error.code().name}", file=sys.stderr)
            return 1
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    print(f"{address}: {status}", file=sys.stderr)
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
