"""Groups at once by the engine's queue, beside numbers that stay, at an engine of few places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from podium.types.v1 import spec_pb2

from bench.asynchronous.run import Result, Shape, run, specification
from bench.asynchronous.stubs import Tempo

TARGET = 0.95
"""Times the steps an hour of the best number that stays, which nobody knows beforehand."""


def compare(shape: Shape, tempo: Tempo, steps: int, fixed: Sequence[int]) -> dict[str, Any]:
    """Each number of `fixed`, and the queue's own up to the greatest of them; prints a table.

    All are at `shape` but for what is at once.
    """
    samples = steps * shape.groups * shape.attempts
    print(
        f"{shape.places} places, max_staleness {shape.staleness}: {steps} steps of {shape.groups}"
        f" groups that can teach, of {shape.attempts} attempts of {tempo.turns} turns"
    )
    shapes = {f"{each} at once": replace(shape, at_once=each) for each in fixed}
    most = max(fixed)
    shapes[f"adaptive, up to {most}"] = replace(shape, at_once=most, adaptive=True)
    found: dict[str, Result] = {}
    for name, each in shapes.items():
        spec = specification(each, spec_pb2.GROUP_ORDER_READY)
        found[name] = result = run(spec, tempo, samples, shape.places)
        if not samples <= result.samples < samples + shape.groups * shape.attempts:
            raise AssertionError(f"{name} trained {result.samples} samples, and not {samples}")
        if result.oldest > shape.staleness or result.twice:
            raise AssertionError(f"{name} trained what is too old, or twice")
        print(
            f"  {name:20s} {result.rate(shape):6.1f} steps an hour; {result.staleness:.2f} versions"
            f" old; {result.ended} groups ended late; a request waited {result.waited:.1f} s;"
            f" places used {result.used:.2f}",
            flush=True,
        )
    *stay, adaptive = found.values()
    best = max(each.rate(shape) for each in stay)
    greatest = found[f"{most} at once"]
    faster = adaptive.rate(shape) / best
    fresher = adaptive.staleness / greatest.staleness
    print(
        f"  {faster:.2f} times the best rate (target {TARGET}:"
        f" {'met' if faster >= TARGET else 'MISSED'}), {fresher:.2f} times the staleness of {most}"
        " at once"
    )
    return {
        "shape": asdict(shape),
        "tempo": asdict(tempo),
        **{name: {**asdict(each), "rate": each.rate(shape)} for name, each in found.items()},
    }
