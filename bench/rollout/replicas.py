"""The same episodes at one replica and at more, each with so many groups at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.rollout.throughput import collect, digest, request_for, service

GROUPS_EACH = 4
"""At once, of a replica."""
GROUPS = 64


async def measure(replicas: int, turns: int, latency_s: float) -> dict[str, Any]:
    """Episodes a second of `GROUPS` groups, and a digest of all trajectories."""
    async with service(latency_s, replicas) as (stub, _):
        # Connects to all, and imports what is imported late.
        await collect(stub, [request_for(0, 1) for _ in range(4 * replicas)])
        await asyncio.sleep(1)
        began = time.perf_counter()
        requests = [request_for(number, turns) for number in range(GROUPS)]
        found = await collect(stub, requests, at_once=GROUPS_EACH * replicas)
        seconds = time.perf_counter() - began
    return {
        "replicas": replicas,
        "episodes": len(found),
        "seconds": seconds,
        "episodes_per_second": len(found) / seconds,
        "trajectories": digest(found),
    }
