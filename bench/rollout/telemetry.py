"""The same episodes with spans exported and without, turn about, on one machine at one time."""

from __future__ import annotations

import math
import os
import statistics
import time
from typing import Any

from bench.rollout.throughput import (
    GROUP_SIZE,
    collect,
    cpu_seconds,
    free_port,
    listens,
    request_for,
    service,
    start,
)

ROUNDS = 6


async def measure(
    episodes: int, turns: int, latency_s: float, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Seconds and CPU seconds of each side and round; the ratios are of each round's pair.

    Each side is a rollout service of its own, and one works at a time; who goes first
    alternates. What the collector takes of the machine counts as telemetry's.
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
    sides: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    try:
        await listens(port)
        async with (
            service(latency_s, variables={}) as (off, (off_process,)),
            service(latency_s, variables=exporting) as (on, (on_process,)),
        ):
            both = {"off": (off, off_process.pid), "on": (on, on_process.pid)}
            requests = [request_for(n, turns) for n in range(max(1, episodes // GROUP_SIZE))]
            for stub, _ in both.values():
                await collect(stub, [request_for(0, 1)])
            for number in range(rounds):
                order = ("off", "on") if number % 2 == 0 else ("on", "off")
                for side in order:
                    stub, pid = both[side]
                    before, began = cpu_seconds(pid), time.perf_counter()
                    found = await collect(stub, requests)
                    seconds = time.perf_counter() - began
                    assert len(found) == len(requests) * GROUP_SIZE
                    traced = sum(1 for each in found if each.root_span_id)
                    assert (traced > 0) == (side == "on")
                    sides[side].append(
                        {
                            "seconds": seconds,
                            "cpu_seconds": cpu_seconds(pid) - before,
                            "traced": traced,
                        }
                    )
    finally:
        collector.kill()
        collector.wait()
    return {
        "episodes": len(requests) * GROUP_SIZE,
        "turns": turns,
        "latency_s": latency_s,
        "sides": sides,
        "seconds_ratio": _ratio(sides, "seconds"),
        "cpu_ratio": _ratio(sides, "cpu_seconds"),
        "cpu_ratio_mean": statistics.mean(_ratios(sides, "cpu_seconds")),
        "cpu_ratio_error": _standard_error(_ratios(sides, "cpu_seconds")),
    }


def _ratio(sides: dict[str, list[dict[str, float]]], what: str) -> float:
    return statistics.median(_ratios(sides, what))


def _ratios(sides: dict[str, list[dict[str, float]]], what: str) -> list[float]:
    pairs = zip(sides["on"], sides["off"], strict=True)
    return [on[what] / off[what] for on, off in pairs]


def _standard_error(values: list[float]) -> float | None:
    """Of their mean; a single one has none."""
    if len(values) < 2:
        return None
    return statistics.stdev(values) / math.sqrt(len(values))
