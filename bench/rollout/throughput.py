"""Many episodes at once in one rollout process, over real gRPC."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from podium.environments import load
from podium.environments.serving.convert import scenario_to_pb
from podium.kit.rpc import connect, rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

GROUP_SIZE = 8
ENVIRONMENT = "tic_tac_toe"
"""Asks again until the last turn when the answer names no cell, as the stub's never does."""


async def measure(episodes: int, turns: int, latency_s: float, workers: int = 1) -> dict[str, Any]:
    """Collects all groups at once and compares with the time that the engine alone needs.

    `front_cpu_s` is what the process that takes the calls computes where there are workers.
    """
    several = {"PODIUM_ROLLOUT_WORKERS": str(workers)}
    async with service(latency_s, variables=several) as (stub, (rollout,)):
        # Connects all, and imports what is imported late.
        await collect(stub, [request_for(n, 1) for n in range(2 * workers)])
        pids = [rollout.pid, *children(rollout.pid)]
        before = [cpu_seconds(pid) for pid in pids]
        began = time.perf_counter()
        requests = [request_for(n, turns) for n in range(episodes // GROUP_SIZE)]
        found = await collect(stub, requests)
        seconds = time.perf_counter() - began
        spent = [cpu_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
        cpu = sum(spent)
    ideal = turns * latency_s
    return {
        "workers": workers,
        "front_cpu_s": spent[0] if workers > 1 else 0.0,
        "episodes": len(found),
        "turns": sum(int(each.metrics["turns"]) for each in found),
        "latency_s": latency_s,
        "seconds": seconds,
        "ideal_s": ideal,
        "share_of_ideal": ideal / seconds,
        "rollout_cpu_s": cpu,
        "rollout_cpu_ms_per_turn": 1000 * cpu / (len(found) * turns),
        "trajectories": digest(found),
    }


def digest(trajectories: list[trajectory_pb2.Trajectory]) -> str:
    """Of everything in them but what a clock wrote."""
    sha = hashlib.sha256()
    for each in sorted(trajectories, key=lambda trajectory: trajectory.id):
        for name in ("start_time", "end_time", "trace_id", "root_span_id"):
            each.ClearField(name)
        sha.update(each.SerializeToString(deterministic=True))
    return sha.hexdigest()


def request_for(number: int, turns: int) -> pb.CollectGroupRequest:
    """A group of that number, whose episodes have so many turns."""
    scenarios = load(ENVIRONMENT)().scenarios("train")
    return pb.CollectGroupRequest(
        group_id=f"bench/s1/g{number}",
        job_id="bench",
        step=1,
        environment=spec_pb2.EnvironmentSpec(name=ENVIRONMENT),
        scenario=scenario_to_pb(scenarios[number % len(scenarios)], "train"),
        attempts=GROUP_SIZE,
        policy=policy_pb2.PolicyRef(job="bench", version=1),
        episode=spec_pb2.EpisodeSpec(max_turns=turns, timeout_seconds=3600),
    )


async def collect(
    stub: pb_grpc.RolloutServiceAsyncStub,
    requests: list[pb.CollectGroupRequest],
    at_once: int = 1 << 30,
) -> list[trajectory_pb2.Trajectory]:
    """The episodes of all groups, `at_once` of which run at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(request: pb.CollectGroupRequest) -> list[trajectory_pb2.Trajectory]:
        async with slots:
            with rpc_errors("rollout"):
                call = stub.CollectGroup(request, timeout=3600)
                return [response.trajectory async for response in call]

    return [each for group in await asyncio.gather(*map(one, requests)) for each in group]


@asynccontextmanager
async def service(
    latency_s: float,
    replicas: int = 1,
    metrics_ports: list[int] | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[pb_grpc.RolloutServiceAsyncStub, list[subprocess.Popen[bytes]]]]:
    """The rollout service as it is deployed, a process a replica, and the stub engine, another.

    `metrics_ports` has one for each replica; any free ones without it. `variables` are the rollout
    service's own, such as OpenTelemetry's.
    """
    engine_port = free_port()
    processes = [start(["bench.rollout.stub_engine", str(engine_port), str(latency_s)], {})]
    ports = [free_port() for _ in range(replicas)]
    metrics_ports = metrics_ports or [0] * replicas
    for port, metrics_port in zip(ports, metrics_ports, strict=True):
        settings = {
            "PORT": port,
            "HEALTH_PORT": 0,
            "METRICS_PORT": metrics_port,
            "INFERENCE_ADDRESS": f"127.0.0.1:{engine_port}",
            "LOG_LEVEL": "WARNING",
        }
        environment = {f"PODIUM_ROLLOUT_{name}": str(value) for name, value in settings.items()}
        processes.append(start(["podium_rollout"], {**environment, **(variables or {})}))
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    try:
        await asyncio.gather(*map(listens, (engine_port, *ports)))
        # As the name of a Service, it stands for all of them.
        async with connect(f"ipv4:{addresses}") as channel:
            yield pb_grpc.RolloutServiceStub(channel), processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def start(arguments: list[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
    """A process of a module, which exports no spans unless `settings` say so."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return subprocess.Popen([sys.executable, "-m", *arguments], env={**own, **settings})


def free_port() -> int:
    """One that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def listens(port: int) -> None:
    """Returns when something does."""
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return
    raise TimeoutError(f"nothing listens on port {port}")


def children(pid: int) -> list[int]:
    """The processes that it has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far, all of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
