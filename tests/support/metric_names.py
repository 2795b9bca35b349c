"""Every metric of Podium's own, from the modules that make them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

ROOT = Path(__file__).parents[2]
HOMES = {
    "console": "podium_console.domain.metrics",
    "controller": "podium_controller.domain.metrics",
    "inference": "podium_inference.domain.metrics",
    "judge": "podium_judge.domain.metrics",
    "registry": "podium_registry.domain.metrics",
    "rollout": "podium_rollout.domain.metrics",
    "tracking": "podium_tracking.domain.metrics",
    "trainer": "podium_trainer.domain.metrics",
    "rpc": "podium.kit.rpc.metrics",
    "tracing": "podium.kit.telemetry.span_metrics",
    "kubernetes": "podium.kit.kubernetes.metrics",
}
"""The one module of each service, and of each part of the kit, that names metrics."""


@dataclass(frozen=True)
class Metric:
    """One metric with its labels."""

    name: str
    """As it is scraped: a counter's with `_total`."""
    labels: frozenset[str]
    histogram: bool
    sums: bool = True
    """Whether a histogram has a `_sum`: Prometheus' client leaves it out where values may fall."""

    @property
    def series(self) -> dict[str, frozenset[str]]:
        """The names of its series, each with its labels."""
        if not self.histogram:
            return {self.name: self.labels}
        names = ("_sum", "_count") if self.sums else ("_count",)
        return {
            f"{self.name}_bucket": self.labels | {"le"},
            **{self.name + name: self.labels for name in names},
        }


def metrics_of(home: str) -> list[Metric]:
    """The metrics that one of HOMES makes."""
    found = []
    for value in vars(importlib.import_module(HOMES[home])).values():
        for each in value.values() if isinstance(value, dict) else [value]:
            if isinstance(each, MetricWrapperBase):
                (described,) = each.describe()
                name = described.name + ("_total" if described.type == "counter" else "")
                labels = frozenset(each._labelnames)
                histogram = described.type == "histogram"
                sums = not histogram or each._upper_bounds[0] >= 0
                found.append(Metric(name, labels, histogram, sums))
    return found


def series() -> dict[str, frozenset[str]]:
    """Every series of Podium's services, with its labels."""
    return {
        name: labels
        for home in HOMES
        for metric in metrics_of(home)
        for name, labels in metric.series.items()
    }
