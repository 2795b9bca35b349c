"""Steps as columns that a chart takes as they are, and that never grow past a bound.

A job of 500 steps has some 50 numbers a step. By rows, with every name again, that is megabytes;
by columns of six digits it is a few hundred kilobytes, and longer jobs are thinned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb

MAX_POINTS = 1000
_MAX_NUMBERS = 60_000

Number = float | None


def rounded(value: float) -> Number:
    """Six digits, which no screen shows more of; None for what is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def columns(
    steps: Sequence[pb.Step], names: Iterable[str] = (), most: int = MAX_POINTS
) -> dict[str, Any]:
    """Step numbers and metrics; each point is the mean of `every` steps.

    Args:
        steps: all of them, oldest first.
        names: only these metrics; none for all.
        most: how many points to have at most.
    """
    wanted = set(names)
    found = {name for step in steps for name in step.metrics}
    shown = sorted(found & wanted if wanted else found)
    points = max(1, min(most, _MAX_NUMBERS // max(1, len(shown))))
    every = max(1, math.ceil(len(steps) / points))
    parts = [steps[at : at + every] for at in range(0, len(steps), every)]
    return {
        "total": len(steps),
        "every": every,
        "numbers": [part[-1].number for part in parts],
        "metrics": {name: [_mean(part, name) for part in parts] for name in shown},
        "not_finite": not_finite(steps),
    }


def not_finite(steps: Sequence[pb.Step]) -> list[str]:
    """Metrics that were infinite or no number in some step; their points are missing."""
    return sorted(
        {n for step in steps for n, value in step.metrics.items() if not math.isfinite(value)}
    )


def numbers(metrics: Iterable[tuple[str, float]]) -> dict[str, Number]:
    """Metrics as JSON can have them."""
    return {name: rounded(value) for name, value in sorted(metrics)}


def _mean(part: Sequence[pb.Step], name: str) -> Number:
    values = [v for step in part if math.isfinite(v := step.metrics.get(name, math.nan))]
    return rounded(sum(values) / len(values)) if values else None
