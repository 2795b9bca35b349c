"""The rollout service as its module wires it, environments beside it, and calls of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from podium.environment.v1 import environment_service_pb2_grpc
from podium.environments import Environment, catalog
from podium.environments.serving.servicer import EnvironmentServicer
from podium.environments.serving.sessions import SessionLimits
from podium.kit.rpc import Server, ServerSettings, connect, rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc
from podium.types.v1 import trajectory_pb2
from podium_rollout.adapters.environments import Environments
from podium_rollout.adapters.policy import InferencePolicy
from podium_rollout.domain.group import GroupRunner
from podium_rollout.servicer import RolloutServicer
from podium_rollout.settings import Settings
from support.guess_environment import Guess
from support.processes import free_port, wait_for_port

if TYPE_CHECKING:
    Stub = rollout_service_pb2_grpc.RolloutServiceAsyncStub


TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog._BUILTIN, "guess", "support.guess_environment:Guess")
    monkeypatch.setattr(Guess, "open", 0)


@asynccontextmanager
async def rollout(
    inference: str, max_groups: int = 8, resume_seconds: float = 2.0
) -> AsyncIterator[Stub]:
    """A client of `rollout_service`."""
    async with rollout_service(inference, max_groups, resume_seconds) as address:
        channel = connect(address)
        try:
            yield rollout_service_pb2_grpc.RolloutServiceStub(channel)
        finally:
            await channel.close()


@asynccontextmanager
async def rollout_service(
    inference: str, max_groups: int = 8, resume_seconds: float = 2.0
) -> AsyncIterator[str]:
    """The address of the service as `python -m podium_rollout` wires it, on ports of its own."""
    settings = Settings(
        port=0, health_port=0, metrics_port=0, inference_address=inference, max_groups=max_groups
    )
    environments = Environments(resume_seconds)
    policy = InferencePolicy(inference, generate_timeout_s=settings.generate_timeout_seconds)
    server = Server("rollout", settings)
    server.add(
        rollout_service_pb2_grpc.add_RolloutServiceServicer_to_server,
        RolloutServicer(
            GroupRunner(environments, {"default": policy}, settings.max_groups), environments
        ),
        "podium.rollout.v1.RolloutService",
    )
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)
        await environments.close()
        await policy.close()


@asynccontextmanager
async def environment_here(
    environment: type[Environment] = Guess, max_sessions: int = 0
) -> AsyncIterator[str]:
    """An environment over gRPC in this process, where its counters can be read."""
    server = Server("environment", ServerSettings())
    server.add(
        environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        EnvironmentServicer(environment, SessionLimits(max_sessions=max_sessions)),
        "podium.environment.v1.EnvironmentService",
    )
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


@dataclass
class Process:
    """`python -m …` on a port that it keeps over its deaths."""

    arguments: list[str]
    port: int
    child: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", *self.arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        )
        await wait_for_port(self.port, self.child)

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()


@pytest.fixture
def environment() -> Iterator[Process]:
    port = free_port()
    path = "support.guess_environment:Guess"
    process = Process(["podium.cli", "env", "serve", path, "--port", str(port)], port)
    yield process
    process.kill()


async def collect(
    stub: Stub, request: pb.CollectGroupRequest, timeout_s: float = 60
) -> list[trajectory_pb2.Trajectory]:
    with rpc_errors("rollout"):
        call = stub.CollectGroup(request, timeout=timeout_s)
        found = [response.trajectory async for response in call]
    return sorted(found, key=lambda trajectory: trajectory.attempt)
