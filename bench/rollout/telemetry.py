"""The same episodes with spans exported and without, turn about, on one machine at one time."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from typing import Any

from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc

from bench.rollout.throughput import (
    GROUP_SIZE,
    collect,
    cpu_seconds,
    digest,
    free_port,
    listens,
    request_for,
    service,
    start,
)

ROUNDS = 6
_DRAWS = 10_000
_FLUSHED_S = 6.0
"""Longer than a span waits for others, which is five seconds."""


class DifferentError(Exception):
    """The sides did not do the same, so that nothing is compared."""


class _Side:
    def __init__(self, stub: pb_grpc.RolloutServiceAsyncStub, pid: int) -> None:
        self.stub = stub
        self.pid = pid
        self.readings: list[float] = []
        self.seconds: list[float] = []
        self.traced: list[int] = []

    def read(self) -> None:
        """What it has computed until its next round begins: what it sent after the last, too."""
        self.readings.append(cpu_seconds(self.pid))

    def cpu(self) -> list[float]:
        """Of each round, with all that came of it."""
        pairs = zip(self.readings[1:], self.readings[:-1], strict=True)
        return [after - before for after, before in pairs]

    async def round(self, requests: list[pb.CollectGroupRequest]) -> str:
        """The digest of what it did."""
        self.read()
        began = time.perf_counter()
        found = await collect(self.stub, requests)
        self.seconds.append(time.perf_counter() - began)
        assert len(found) == len(requests) * GROUP_SIZE
        self.traced.append(sum(1 for each in found if each.root_span_id))
        return digest(found)


async def measure(
    episodes: int, turns: int, latency_s: float, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds and CPU seconds of each side and round; the ratios are of each round's pair.

    Each side is a rollout service of its own, and one works at a time; who goes first alternates.
    A first round of each warms up, and is not counted. A round's CPU is read when the same side's
    next one begins, for spans are sent late.

    Raises:
        DifferentError: the sides' trajectories differ, or the side without spans traced.
    """
    port = free_port()
    collector = start(["bench.rollout.collector", str(port)], {})
    # OTEL_TRACES_SAMPLER and the like of whoever measures hold for the side that exports.
    given = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    exporting = {
        **given,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_INSECURE": "true",
    }
    try:
        await listens(port)
        async with (
            service(latency_s, variables={}) as (off_stub, (off_process,)),
            service(latency_s, variables=exporting) as (on_stub, (on_process,)),
        ):
            off, on = _Side(off_stub, off_process.pid), _Side(on_stub, on_process.pid)
            requests = [request_for(n, turns) for n in range(max(1, episodes // GROUP_SIZE))]
            done = set()
            for number in range(rounds + 1):
                for side in (off, on) if number % 2 == 0 else (on, off):
                    done.add(await side.round(requests))
            await asyncio.sleep(_FLUSHED_S)
            off.read()
            on.read()
    finally:
        collector.kill()
        collector.wait()
    if len(done) != 1 or any(off.traced) or not any(on.traced):
        raise DifferentError(f"{len(done)} digests; traced {off.traced} and {on.traced}")
    sides = {
        name: {"seconds": side.seconds[1:], "cpu_seconds": side.cpu()[1:], "traced": side.traced}
        for name, side in (("off", off), ("on", on))
    }
    return {
        "episodes": len(requests) * GROUP_SIZE,
        "turns": turns,
        "latency_s": latency_s,
        "traced": statistics.mean(on.traced[1:]),
        "sides": sides,
        "seconds": compared(on.seconds[1:], off.seconds[1:]),
        "cpu": compared(on.cpu()[1:], off.cpu()[1:]),
    }


def compared(on: list[float], off: list[float]) -> dict[str, float]:
    """The pairs' ratios: mean and median, and the mean's interval of 95 % by bootstrap.

    Drawn with a seed, so that the same pairs have the same interval.
    """
    ratios = [one / other for one, other in zip(on, off, strict=True)]
    draw = random.Random(1)
    means = sorted(statistics.fmean(draw.choices(ratios, k=len(ratios))) for _ in range(_DRAWS))
    return {
        "pairs": len(ratios),
        "mean": statistics.fmean(ratios),
        "low": means[round(0.025 * _DRAWS)],
        "high": means[round(0.975 * _DRAWS)],
        "median": statistics.median(ratios),
    }
