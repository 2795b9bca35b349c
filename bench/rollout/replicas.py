"""The same episodes at one replica and at more, each with so many groups at once."""

from __future__ import annotations

import asyncio
import math
import re
import time
import urllib.request
from typing import Any

from bench.rollout.throughput import collect, digest, free_port, request_for, service

GROUPS_EACH = 4
"""At once, of a replica."""
GROUPS = 64
_EPISODES = re.compile(r"^podium_rollout_episodes_total\{.*\} (\S+)$", re.MULTILINE)


async def measure(
    replicas: int, turns: int, latency_s: float, groups: int = GROUPS
) -> dict[str, Any]:
    """Episodes a second of so many groups, what each replica ran, and a digest of all trajectories.

    `ideal_s` is what the engine's latency alone would take with the groups dealt evenly.
    """
    ports = [free_port() for _ in range(replicas)]
    async with service(latency_s, replicas, ports) as (stub, _):
        # Connects to all, and imports what is imported late.
        await collect(stub, [request_for(0, 1) for _ in range(4 * replicas)])
        await asyncio.sleep(1)
        before = [await _episodes(port) for port in ports]
        began = time.perf_counter()
        requests = [request_for(number, turns) for number in range(groups)]
        found = await collect(stub, requests, at_once=GROUPS_EACH * replicas)
        seconds = time.perf_counter() - began
        ran = [await _episodes(port) for port in ports]
    ideal = math.ceil(groups / (GROUPS_EACH * replicas)) * turns * latency_s
    return {
        "replicas": replicas,
        "episodes": len(found),
        "episodes_by_replica": [after - b for after, b in zip(ran, before, strict=True)],
        "seconds": seconds,
        "ideal_s": ideal,
        "share_of_ideal": ideal / seconds,
        "episodes_per_second": len(found) / seconds,
        "trajectories": digest(found),
    }


async def _episodes(port: int) -> int:
    """How many a replica has run, as its metrics tell it."""

    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    return int(sum(float(value) for value in _EPISODES.findall(await asyncio.to_thread(read))))
