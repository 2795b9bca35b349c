"""Steps as columns that a chart takes as they are, and that never grow past a bound.

A job of 500 steps has some 50 numbers a step. By rows, with every name again, that is megabytes;
by columns of six digits it is a few hundred kilobytes, and longer jobs are thinned.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb

MAX_POINTS = 1000
_MAX_NUMBERS = 60_000
_VALUE_BYTES, _NAME_BYTES = 16, 400

Number = float | None


def rounded(value: float) -> Number:
    """Six digits, which no screen shows more of; None for what is no number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


class StepSeries:
    """The numbers of a job's steps, oldest first. Names may be many, each of few steps."""

    def __init__(self) -> None:
        """There are no steps yet."""
        self._numbers = array("q")
        self._metrics: dict[str, tuple[array[int], array[float]]] = {}
        """Which steps have it, counted from 0, and its values there."""
        self._not_finite: set[str] = set()
        self._values = 0

    def __len__(self) -> int:
        """How many steps there are."""
        return len(self._numbers)

    @property
    def weight(self) -> int:
        """Bytes that they take, about."""
        return _VALUE_BYTES * (len(self) + self._values) + _NAME_BYTES * len(self._metrics)

    def extend(self, rows: Iterable[pb.Step]) -> None:
        """Adds steps that were committed after those before."""
        for step in rows:
            for name, value in step.metrics.items():
                if name not in self._metrics:
                    self._metrics[name] = array("q"), array("d")
                places, values = self._metrics[name]
                places.append(len(self))
                values.append(value)
                if not math.isfinite(value):
                    self._not_finite.add(name)
            self._values += len(step.metrics)
            self._numbers.append(step.number)

    def plain(
        self, names: Iterable[str] = (), most: int = MAX_POINTS, after: int = 0
    ) -> dict[str, Any]:
        """Step numbers and metrics; each point is the mean of `every` steps.

        Args:
            names: only these metrics; none for all.
            most: how many points to have at most.
            after: only of the steps after this number; `total` counts all.
        """
        wanted = set(names)
        begin = bisect_right(self._numbers, after)
        shown = sorted(name for name in self._metrics if not wanted or name in wanted)
        points = max(1, min(most, _MAX_NUMBERS // max(1, len(shown))))
        every = max(1, math.ceil((len(self) - begin) / points))
        ends = [min(at + every, len(self)) for at in range(begin, len(self), every)]
        return {
            "total": len(self),
            "every": every,
            "numbers": [self._numbers[end - 1] for end in ends],
            "metrics": {name: _means(self._column(name, begin), every) for name in shown},
            "not_finite": sorted(self._not_finite),
        }

    def _column(self, name: str, begin: int) -> list[float]:
        """From the step with that place on; NaN where a step has none."""
        column = [math.nan] * (len(self) - begin)
        places, values = self._metrics[name]
        for at in range(bisect_left(places, begin), len(places)):
            column[places[at] - begin] = values[at]
        return column


def numbers(metrics: Iterable[tuple[str, float]]) -> dict[str, Number]:
    """Metrics as JSON can have them."""
    return {name: rounded(value) for name, value in sorted(metrics)}


def _means(column: Sequence[float], every: int) -> list[Number]:
    if every == 1:
        return [rounded(value) for value in column]
    return [_mean(column[at : at + every]) for at in range(0, len(column), every)]


def _mean(part: Sequence[float]) -> Number:
    values = [value for value in part if math.isfinite(value)]
    return rounded(sum(values) / len(values)) if values else None
