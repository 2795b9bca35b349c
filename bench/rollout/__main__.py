"""`python -m bench.rollout`: what one rollout process carries."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path

from bench.rollout import bookkeeping, throughput

TARGET = 0.9
"""Share of the throughput that the engine's latency alone would allow."""
LONGEST = 1000
GROWTH = 1.5
"""A turn of the longest episode may cost this many times one of 100 turns."""


def main() -> int:
    """Returns 0; a missed target is printed, and no error."""
    options = _options()
    rows = [
        asyncio.run(throughput.measure(options.episodes, options.turns, latency))
        for latency in options.latency
    ]
    for row in rows:
        print(
            f"{row['episodes']} episodes of {options.turns} turns, {row['latency_s']:g} s a "
            f"generation: {row['seconds']:.2f} s, {row['share_of_ideal']:.3f} of the ideal, "
            f"target {TARGET} {'met' if row['share_of_ideal'] >= TARGET else 'MISSED'}; "
            f"{row['rollout_cpu_ms_per_turn']:.2f} ms of CPU a turn"
        )
    costs = [
        asyncio.run(bookkeeping.measure(turns, options.repeats)) for turns in (10, 100, LONGEST)
    ]
    for cost in costs:
        print(f"{cost['turns']} turns ({cost['tokens']} tokens): {cost['ms_per_turn']:.3f} ms each")
    growth = costs[-1]["ms_per_turn"] / costs[1]["ms_per_turn"]
    print(f"growth {growth:.2f}, target {GROWTH}: {'met' if growth <= GROWTH else 'MISSED'}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "throughput": rows,
        "bookkeeping": costs,
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rollout", description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency", type=float, nargs="+", default=[1.0, 5.0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("build/bench/rollout.json"))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
