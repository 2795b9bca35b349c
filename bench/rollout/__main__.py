"""`python -m bench.rollout`: what one rollout process carries."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

from bench.rollout import bookkeeping, rendering, replicas, telemetry, throughput

TARGET = 0.9
"""Share of the throughput that the engine's latency alone would allow."""
LONGEST = 1000
PROCESS = 2500
"""Turns that a process is to make in a second of CPU, what hands it its groups included."""
TELEMETRY = 1.03
"""Times the CPU of the same episodes without spans; the whole interval is to be below."""
SHORT = 10
RENDER_SHORT = 0.4
"""Milliseconds of CPU that a turn's render may take on average, of so many turns."""
RENDER_LONG = 2.0
"""Those of the last turn of a longer conversation."""
GROWTH = 1.5
"""A turn of the longest episode may cost this many times one of 100 turns."""


def main() -> int:
    """Returns 0; a missed target is printed, and no error."""
    options = _options()
    if options.replicas:
        return _replicas(options)
    if options.workers:
        return _workers(options)
    if options.telemetry:
        return _telemetry(options)
    if options.rendering:
        return _rendering(options)
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
    _write(options.output, {"throughput": rows, "bookkeeping": costs})
    return 0


def _replicas(options: argparse.Namespace) -> int:
    latency = options.latency[0]
    rows = [
        asyncio.run(replicas.measure(count, options.turns, latency, options.groups))
        for count in options.replicas
    ]
    if len({row["trajectories"] for row in rows}) != 1:
        print("the trajectories differ, so nothing is compared")
        return 1
    for row in rows:
        ratio = row["episodes_per_second"] / rows[0]["episodes_per_second"]
        print(
            f"{row['replicas']} replicas: {row['episodes_per_second']:.2f} episodes a second, "
            f"{ratio:.2f} times that of {rows[0]['replicas']}, {row['share_of_ideal']:.3f} of the "
            f"ideal; episodes by replica: {', '.join(map(str, row['episodes_by_replica']))}"
        )
    _write(options.output, {"latency_s": latency, "turns": options.turns, "replicas": rows})
    return 0


def _workers(options: argparse.Namespace) -> int:
    rows = [
        asyncio.run(throughput.measure(options.episodes, options.turns, options.latency[0], count))
        for count in options.workers
    ]
    if len({row["trajectories"] for row in rows}) != 1:
        print("the trajectories differ, so nothing is compared")
        return 1
    for row in rows:
        per_turn = row["rollout_cpu_ms_per_turn"]
        met = "met" if 1000 / per_turn >= PROCESS else "MISSED"
        print(
            f"{row['workers']} workers, {row['episodes']} episodes of {options.turns} turns: "
            f"{per_turn:.3f} ms of CPU a turn, {1000 / per_turn:.0f} turns a second for each core "
            f"that they have, target {PROCESS} {met}; the process that takes the calls has "
            f"{row['front_cpu_s'] / row['rollout_cpu_s']:.1%} of it"
        )
    _write(options.output, {"workers": rows})
    return 0


def _telemetry(options: argparse.Namespace) -> int:
    try:
        rows = [
            asyncio.run(
                telemetry.measure(options.episodes, options.turns, latency, options.telemetry)
            )
            for latency in options.latency
        ]
    except telemetry.DifferentError as error:
        print(f"the sides differ, so nothing is compared: {error}")
        return 1
    for row in rows:
        cpu, seconds = row["cpu"], row["seconds"]
        print(
            f"{row['episodes']} episodes of {row['turns']} turns, {row['latency_s']:g} s a"
            f" generation, {row['traced']:g} traced, {cpu['pairs']} pairs: with spans exported"
            f" {_interval(cpu)} times the CPU, target {TELEMETRY}"
            f" {'met' if cpu['high'] <= TELEMETRY else 'MISSED'}; {_interval(seconds)} times the"
            " seconds"
        )
    _write(options.output, {"telemetry": rows})
    return 0


def _interval(ratio: dict[str, float]) -> str:
    """The mean of the pairs and its interval of 95 %."""
    return f"{ratio['mean']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


def _rendering(options: argparse.Namespace) -> int:
    made = rendering.tokenizer()
    rows = []
    for name, template in rendering.templates().items():
        for kind in rendering.KINDS:
            for turns in options.rendering:
                row = rendering.measure(made, template, turns, kind)
                rows.append({"template": name, **row})
                allowed = RENDER_SHORT if turns <= SHORT else RENDER_LONG
                cost = row["ms_per_turn"] if turns <= SHORT else row["ms_last_turn"]
                print(
                    f"real template {name}, {turns} turns of {kind}: {row['ms_per_turn']:.2f} ms of"
                    f" CPU a turn, {row['ms_last_turn']:.2f} the last one, which is"
                    f" {row['ms_last_turn_whole'] / row['ms_last_turn']:.1f} times as much of the"
                    f" whole; target {allowed} {'met' if cost <= allowed else 'MISSED'}"
                )
    episodes = [
        {"turns": turns, "ms_per_turn": asyncio.run(rendering.measure_episode(made, "", turns, 3))}
        for turns in options.rendering
    ]
    for row in episodes:
        print(
            f"real template {rendering.OWN}, {row['turns']} turns of an episode, renders and agent"
            f" loop: {row['ms_per_turn']:.2f} ms of CPU a turn"
        )
    _write(options.output, {"rendering": rows, "episodes": episodes})
    return 0


def _write(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()}
    path.write_text(json.dumps({**machine, **result}, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rollout", description=__doc__)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency", type=float, nargs="+", default=[1.0, 5.0])
    parser.add_argument(
        "--replicas",
        type=lambda text: [int(part) for part in text.split(",")],
        metavar="N,…",
        help="only compare so many replicas, such as 1,2,4",
    )
    parser.add_argument(
        "--workers",
        type=lambda text: [int(part) for part in text.split(",")],
        metavar="N,…",
        help="only compare so many worker processes, such as 1,2",
    )
    parser.add_argument(
        "--groups", type=int, default=replicas.GROUPS, help="of 8 episodes, for --replicas"
    )
    parser.add_argument(
        "--telemetry",
        type=int,
        nargs="?",
        const=telemetry.ROUNDS,
        default=0,
        metavar="ROUNDS",
        help="only compare spans exported and not, in so many rounds",
    )
    parser.add_argument(
        "--rendering",
        type=int,
        nargs="*",
        metavar="TURNS",
        help="only what renders with real templates cost; 10 100 400 unless told",
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("build/bench/rollout.json"))
    options = parser.parse_args()
    if options.rendering is not None:
        options.rendering = options.rendering or [10, 100, 400]
    return options


if __name__ == "__main__":
    raise SystemExit(main())
