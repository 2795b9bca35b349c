"""What a release's dashboards and rules make of a job, by a Prometheus that scrapes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dashboards
import yaml
from chart_golden import render
from support.chart_pods import of_kind
from support.prometheus_server import Prometheus

RULES = "rules.yml"


def write_rules(folder: Path, release: str, namespace: str) -> Sequence[str]:
    """The chart's rules of a release with one pool, as a Prometheus in the folder loads them."""
    values = {"monitoring": {"rules": {"enabled": True}}, "pools": [{"name": "default"}]}
    (found,) = of_kind(render(values, name=release, namespace=namespace), "PrometheusRule")
    (folder / RULES).write_text(yaml.safe_dump(found["spec"]))
    return [RULES]


def empty(
    prometheus: Prometheus, variables: Mapping[str, str], began: float, *, cluster: bool
) -> list[str]:
    """What shows nothing and should; every other expression is evaluated too."""
    found = []
    for name in dashboards.BOARDS:
        needed = set(dashboards.expressions(name, needed=True, cluster=cluster))
        for expression in dashboards.expressions(name):
            asked = expression
            for variable, value in variables.items():
                asked = asked.replace(variable, value)
            if not prometheus.series(asked, began, time.time()) and expression in needed:
                found.append(f"{name}: {expression}")
    return found


def unwell(prometheus: Prometheus) -> list[dict[str, Any]]:
    """The rules that were not evaluated, or not without an error."""
    rules = prometheus.rules()
    assert rules
    return [rule for rule in rules if rule["health"] != "ok"]
