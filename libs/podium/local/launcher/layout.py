"""Which services there are and which ports they take."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from podium.core.errors import InvalidArgumentError, Violation

SERVICES = ("controller", "registry", "inference", "rollout", "judge", "trainer")
"""In port order: the controller takes the base, the registry base + 1, …"""

EXTRAS = ("tracking", "console")
"""Services that a stack has when it is asked for them: clients of the others' APIs. Their ports
follow the six's."""

READINESS = {
    "controller": "podium.jobs.v1.JobService",
    "registry": "podium.registry.v1.RegistryService",
    "inference": "podium.inference.v1.InferenceService",
    "rollout": "podium.rollout.v1.RolloutService",
    "judge": "podium.judge.v1.JudgeService",
    "trainer": "podium.trainer.v1.TrainerService",
    # These serve no calls of gRPC's: that they live is all.
    "tracking": "",
    "console": "",
}
"""What to ask each health port for: whether it takes calls, not only lives."""

DEFAULT_PORT_BASE = 50051
HEALTH_OFFSET = 10
METRICS_OFFSET = 20
HTTP_OFFSET = 30
"""The OpenAI API takes the inference service's gRPC port + 30."""

# Below the kernel's ephemeral range, so that a client's outgoing connection
# cannot take the port of a service that is being restarted.
_FREE_RANGE = range(20000, 32000)


@dataclass(frozen=True)
class Ports:
    """The ports of one service; `http` is 0 but for inference. The console's HTTP is its `grpc`."""

    grpc: int
    health: int
    metrics: int
    http: int = 0


def service_names(only: Sequence[str]) -> tuple[str, ...]:
    """Checks a choice of services; none means all.

    Raises:
        InvalidArgumentError: a name that is no service.
    """
    every = (*SERVICES, *EXTRAS)
    unknown = [name for name in only if name not in every]
    if unknown:
        raise InvalidArgumentError(
            violations=[
                Violation("only", f"got {name!r}; allowed are {', '.join(every)}")
                for name in unknown
            ]
        )
    return tuple(name for name in every if name in (only or SERVICES))


def choose_ports(port_base: int) -> dict[str, Ports]:
    """The ports of every service: fixed by `port_base`, or free ones for 0.

    Raises:
        InvalidArgumentError: the layout would leave the range of ports.
    """
    every = (*SERVICES, *EXTRAS)
    if port_base == 0:
        free = iter(free_ports(3 * len(every) + 1))
        return {
            name: Ports(next(free), next(free), next(free), next(free) if _has_http(name) else 0)
            for name in every
        }
    last = port_base + HTTP_OFFSET + len(every)
    if port_base < 1024 or last > 65535:
        highest = 65535 - HTTP_OFFSET - len(SERVICES)
        raise InvalidArgumentError(
            violations=[
                Violation("port_base", f"got {port_base}; allowed are 0 and 1024 to {highest}")
            ]
        )
    return {
        name: Ports(
            port,
            port + HEALTH_OFFSET,
            port + METRICS_OFFSET,
            port + HTTP_OFFSET if _has_http(name) else 0,
        )
        for port, name in enumerate(every, start=port_base)
    }


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether nothing listens on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _has_http(name: str) -> bool:
    return name == "inference"


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on now, and that no client's connection is given.

    Raises:
        InvalidArgumentError: there are not so many.
    """
    candidates = random.SystemRandom().sample(_FREE_RANGE, len(_FREE_RANGE))
    free: list[int] = []
    for port in candidates:
        if is_free(port):
            free.append(port)
            if len(free) == count:
                return free
    raise InvalidArgumentError(f"this machine has no {count} free ports left")
