"""`python -m bench.asynchronous`: groups as they become ready, beside a fixed set a step."""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from podium.types.v1 import spec_pb2

from bench.asynchronous.crowd import compare
from bench.asynchronous.run import Result, Shape, run, specification
from bench.asynchronous.stubs import Tempo

TARGETS = {1: 1.3, 4: 2.0}
"""Times the steps an hour of a fixed set, by staleness."""


class UnequalError(Exception):
    """The two sides did not do the same, or one trained what it may not."""


def main() -> int:
    """Returns 0; a missed target is printed, and no error."""
    options = _options()
    logging.disable(logging.ERROR)
    tempo = Tempo(
        options.median,
        options.sigma,
        options.flat,
        options.training * options.median,
        options.turns,
        options.tool,
    )
    rows = []
    for staleness in options.staleness:
        shape = Shape(staleness, options.groups, options.attempts, max(options.at_once))
        if options.places:
            crowded = replace(shape, places=options.places)
            rows.append(compare(crowded, tempo, options.steps, options.at_once))
        else:
            rows.append(_compare(shape, tempo, options.steps))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return 0


def _compare(shape: Shape, tempo: Tempo, steps: int) -> dict[str, Any]:
    samples = steps * shape.groups * shape.attempts
    fixed = run(specification(shape, spec_pb2.GROUP_ORDER_FIXED), tempo, samples)
    ready = run(specification(shape, spec_pb2.GROUP_ORDER_READY), tempo, samples)
    found = {"fixed": fixed, "ready": ready}
    for name, each in found.items():
        _check(name, each, shape, samples)
    ideal = _ideal(shape, tempo, fixed)
    print(
        f"max_staleness {shape.staleness}: {steps} steps of {shape.groups} groups that can teach,"
        f" of {shape.attempts} attempts; {shape.at_once} at once; ideal {ideal:.0f} steps an hour"
    )
    for name, each in found.items():
        print(
            f"  {name:5s} {each.samples} samples in {each.seconds:6.1f} s:"
            f" {each.rate(shape):6.0f} steps an hour, {each.rate(shape) / fixed.rate(shape):.2f}"
            f" times, {each.rate(shape) / ideal:.2f} of the ideal; at most {each.oldest} versions"
            f" old; {each.ended} groups ended late; a trained group took {each.length:.2f} s, a"
            f" begun one {each.drawn_length:.2f} s"
        )
    ratio, target = found["ready"].rate(shape) / fixed.rate(shape), TARGETS.get(shape.staleness)
    if target:
        print(f"  target {target}: {'met' if ratio >= target else 'MISSED'}")
    return {
        "shape": asdict(shape),
        "tempo": asdict(tempo),
        "ideal": ideal,
        **{name: {**asdict(each), "rate": each.rate(shape)} for name, each in found.items()},
    }


def _check(name: str, result: Result, shape: Shape, samples: int) -> None:
    """Both sides trained as many samples, up to a step, each once and none too old."""
    if not samples <= result.samples < samples + shape.groups * shape.attempts:
        raise UnequalError(f"{name} trained {result.samples} samples, and not {samples}")
    if result.oldest > shape.staleness:
        raise UnequalError(f"{name} trained a group that was {result.oldest} versions old")
    if result.twice:
        raise UnequalError(f"{name} trained {result.twice} groups twice")


def _ideal(shape: Shape, tempo: Tempo, measured: Result) -> float:
    """Steps an hour of an engine that is never idle, and a trainer beside it.

    So many groups are underway as may be, each takes as long as one does on average, and what
    cannot teach is made and not trained.
    """
    underway = min(shape.at_once, (shape.staleness + 1) * shape.groups)
    groups = underway * (1 - tempo.flat) / measured.drawn_length
    return 3600 * min(groups / shape.groups, 1 / tempo.training)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.asynchronous", description=__doc__)
    parser.add_argument("--staleness", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=40, help="of groups that can teach")
    parser.add_argument("--groups", type=int, default=8, help="a step")
    parser.add_argument("--attempts", type=int, default=8, help="a group")
    parser.add_argument(
        "--at-once", type=int, nargs="+", default=[32], help="groups; the greatest without places"
    )
    parser.add_argument(
        "--places",
        type=int,
        default=0,
        help="of the engine: each of at-once stands beside adaptive_concurrency; 0 for no end",
    )
    parser.add_argument("--turns", type=int, default=1, help="of an attempt, with places")
    parser.add_argument("--tool", type=float, default=0.0, help="seconds between two turns")
    parser.add_argument("--median", type=float, default=0.2, help="seconds of an attempt")
    parser.add_argument("--sigma", type=float, default=1.0, help="of their logarithm")
    parser.add_argument("--flat", type=float, default=0.35, help="share without variance")
    parser.add_argument("--training", type=float, default=0.5, help="medians that a step takes")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
