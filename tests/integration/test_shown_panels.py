"""What tests of a real job ask of a Prometheus, of one that nobody tells anything."""

from __future__ import annotations

import time
from pathlib import Path

import dashboards
import pytest
from dashboard_panels import NO_CLUSTER
from support.prometheus_server import scraping
from support.shown_panels import empty, unwell, write_rules

VARIABLES = {
    "$namespace": "ns",
    "$release": "one",
    "$job": "j",
    "$pool": "inference-default",
    "$__rate_interval": "10s",
    "$__range": "10m",
}


@pytest.mark.parametrize("cluster", [False, True])
def test_every_expression_and_rule_evaluates_and_what_should_show_something_is_named(
    cluster: bool, tmp_path: Path
) -> None:
    rules = write_rules(tmp_path, "one", "ns")
    began = time.time()
    with scraping(tmp_path, [], rules, interval="500ms") as prometheus:
        end = time.monotonic() + 60
        while wrong := unwell(prometheus):
            assert time.monotonic() < end, wrong
        missing = empty(prometheus, VARIABLES, began, cluster=cluster)
    api_server = {
        q for p in dashboards.panels_of("services") if p.empty == NO_CLUSTER for q, _ in p.queries
    }
    assert len(api_server) == 1
    needed = [
        f"{name}: {each}"
        for name in dashboards.BOARDS
        for each in dashboards.expressions(name, needed=True)
        if not each.endswith("or vector(0)")
    ]
    assert set(missing) == {*needed, *(f"services: {each}" for each in api_server if cluster)}
