"""`python -m bench.cluster`: many jobs at once on many nodes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2_grpc as pb_grpc
from podium.kit.rpc import connect
from podium.types.v1 import spec_pb2

from bench.cluster.installation import Installation, installed, kubectl, running
from bench.cluster.stub_pool import BASE_MODEL

QUIET_SECONDS = 60
LONGEST_SECONDS = 900


def main() -> None:
    """Prints what it measured, and writes it."""
    options = _options()
    # The processes that it starts end with it, however it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    nodes = kubectl("get", "nodes", "--selector", options.selector, "--output", "name").split()
    key, _, value = options.selector.partition("=")
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(_measured(Path(folder), options.jobs, {key: value}))
    result = {
        "jobs": options.jobs,
        "nodes": len(nodes),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        **found,
    }
    for name, each in result.items():
        print(f"{name}: {each}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")


async def _measured(folder: Path, jobs: int, selector: dict[str, str]) -> dict[str, Any]:
    async with installed(folder, jobs, selector) as installation:
        memory = await installation.memory()
        before = await installation.calls()
        async with connect(installation.address, default_timeout=120) as channel:
            stub: pb_grpc.JobServiceAsyncStub = pb_grpc.JobServiceStub(channel)
            began = time.monotonic()
            await asyncio.gather(*(_submit(stub, number) for number in range(jobs)))
            accepted = time.monotonic() - began
            created = await _until(began, lambda: _made(installation, before, jobs))
            ran = await _until(began, lambda: _run(installation, jobs))
            during = _difference(await installation.calls(), before)
            at_most = await installation.memory()
            quiet = await installation.calls()
            await asyncio.sleep(QUIET_SECONDS)
            idle = _difference(await installation.calls(), quiet)
            ended = time.monotonic()
            await asyncio.gather(*(_cancel(stub, number) for number in range(jobs)))
            gone = await _until(ended, lambda: _gone(installation))
    return {
        "all_accepted_s": round(accepted, 2),
        "all_created_s": round(created, 2),
        "all_running_s": round(ran, 2),
        "all_removed_s": round(gone, 2),
        "calls": during,
        "calls_per_job": round(sum(during.values()) / jobs, 2),
        f"calls_in_{QUIET_SECONDS}_quiet_seconds": idle,
        "memory_before_mb": round(memory / 1e6, 1),
        "memory_after_mb": round(at_most / 1e6, 1),
    }


async def _submit(stub: pb_grpc.JobServiceAsyncStub, number: int) -> None:
    spec = spec_pb2.JobSpec(
        base_model=BASE_MODEL,
        client=spec_pb2.ClientSpec(),
        training=spec_pb2.TrainingSpec(steps=1),
        recovery_timeout_seconds=3600,
    )
    name = f"job-{number}"
    await stub.CreateJob(pb.CreateJobRequest(job=pb.Job(id=name, spec=spec), request_id=name))


async def _cancel(stub: pb_grpc.JobServiceAsyncStub, number: int) -> None:
    await stub.CancelJob(pb.CancelJobRequest(job_id=f"job-{number}"))


async def _until(began: float, done: Callable[[], Awaitable[bool]]) -> float:
    """Seconds from `began` until it is so."""
    while not await done():
        if time.monotonic() - began > LONGEST_SECONDS:
            raise SystemExit(f"not done within {LONGEST_SECONDS} seconds")
        await asyncio.sleep(0.5)
    return time.monotonic() - began


async def _made(installation: Installation, before: dict[str, int], jobs: int) -> bool:
    calls = _difference(await installation.calls(), before)
    return calls.get("POST jobs", 0) >= jobs


async def _run(installation: Installation, jobs: int) -> bool:
    return await asyncio.to_thread(running, installation.namespace) >= jobs


async def _gone(installation: Installation) -> bool:
    left = await asyncio.to_thread(
        kubectl, "--namespace", installation.namespace, "get", "jobs", "--output", "name"
    )
    return not left.split()


def _difference(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    counts = {name: count - before.get(name, 0) for name, count in after.items()}
    return {name: count for name, count in sorted(counts.items()) if count}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--selector", default="pool=hollow", help="label of the nodes to use")
    parser.add_argument("--output", type=Path, default=Path("build/bench/cluster.json"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
