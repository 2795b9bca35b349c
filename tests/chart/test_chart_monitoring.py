"""Alerts and dashboards: their expressions are about series that exist, and do what they say."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import dashboards
import pytest
import yaml
from chart_golden import CHART, render
from prometheus_client import REGISTRY
from support.chart_pods import of_kind
from support.programs import program

RULES = CHART / "files" / "rules.yaml"
ROOT = CHART.parents[1]

# Of vLLM 0.32, as tests/e2e sees them on a running pool; the rest is Prometheus' and the process'.
FOREIGN = {
    "up",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
    "vllm:time_to_first_token_seconds_bucket",
}


def exported() -> set[str]:
    """Every series that Podium's services make."""
    for service in ("controller", "inference", "judge", "registry", "rollout", "trainer"):
        importlib.import_module(f"podium_{service}.metrics")
    importlib.import_module("podium.kit.rpc.observe")
    names = set()
    for metric in REGISTRY.collect():
        names |= {metric.name, f"{metric.name}_total"}
        if metric.type == "histogram":
            names |= {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    return {name for name in names if name.startswith("podium_")}


def used(expression: str) -> set[str]:
    return set(re.findall(r"([a-z_]+(?::[a-z_]+)?)\{", expression))


def alerts() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, str]] = group["rules"]
    return found


def test_alerts_are_about_series_that_exist() -> None:
    known = exported() | FOREIGN
    for alert in alerts():
        names = used(alert["expr"])
        assert names, alert["alert"]
        assert names <= known, alert["alert"]


@pytest.mark.parametrize("uid", dashboards.DASHBOARDS)
def test_panels_are_about_series_that_exist(uid: str) -> None:
    known = exported() | FOREIGN
    for expression in dashboards.expressions(uid):
        assert used(expression), expression
        assert used(expression) <= known, expression


def test_the_dashboards_are_written() -> None:
    for uid in dashboards.DASHBOARDS:
        text = (dashboards.FOLDER / f"{uid}.json").read_text()
        assert json.loads(text) == dashboards.dashboard(uid), "run `make dashboards`"


@pytest.mark.parametrize("uid", dashboards.DASHBOARDS)
def test_every_panel_is_described_and_has_a_unit(uid: str) -> None:
    board = dashboards.dashboard(uid)
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_promtool_accepts_the_rules_and_each_alert_does_what_it_says(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    tests = Path(__file__).parent / "rules_test.yaml"
    shutil.copy(tests, tmp_path)
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run(
            [program("promtool", "prometheus"), *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tested = set(re.findall(r"alertname: (\w+)", tests.read_text()))
    assert tested == {alert["alert"] for alert in alerts()}


def test_every_alert_has_a_page_to_open() -> None:
    page = (ROOT / "docs" / "operate.md").read_text()
    for alert in alerts():
        assert alert["annotations"]["runbook_url"] == f"docs/operate.md#{alert['alert'].lower()}"
        assert f"\n### {alert['alert']}\n" in page, alert["alert"]


def test_rules_are_about_their_own_release() -> None:
    values = {"monitoring": {"rules": {"enabled": True, "runbookBaseUrl": "https://x/"}}}
    (rule,) = of_kind(render(values, name="one", namespace="ns"), "PrometheusRule")
    for alert in rule["spec"]["groups"][0]["rules"]:
        for selector in re.findall(r"\{([^}]*)\}", alert["expr"]):
            assert 'namespace="ns"' in selector
            assert 'podium_release="one"' in selector
        assert alert["annotations"]["runbook_url"].startswith("https://x/docs/operate.md#")


def test_a_pool_is_scaled_by_a_series_of_its_own_pods() -> None:
    scaling = {"enabled": True, "prometheusAddress": "http://prometheus:9090"}
    pools = [{"name": "a", "autoscaling": scaling}, {"name": "b"}]
    values = {"pools": pools, "monitoring": {"podMonitor": {"enabled": True}}}
    objects = render(values, name="one", namespace="ns")
    (scaler,) = of_kind(objects, "ScaledObject")
    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    assert used(query) <= FOREIGN
    labels = dict(re.findall(r'(\w+)="([^"]*)"', query))
    assert labels == {
        "namespace": "ns",
        "podium_release": "one",
        "podium_component": "inference-a",
    }
    (monitor,) = of_kind(objects, "PodMonitor")
    given = {r["targetLabel"] for r in monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]}
    # The namespace is the operator's to give.
    assert given >= set(labels) - {"namespace"}


def test_dashboards_are_found_by_labels_of_ones_choice() -> None:
    values = {"monitoring": {"dashboards": {"enabled": True, "labels": {"find": "me"}}}}
    boards = [
        c for c in of_kind(render(values), "ConfigMap") if "dashboard" in c["metadata"]["name"]
    ]
    assert len(boards) == len(dashboards.DASHBOARDS)
    for board in boards:
        assert board["metadata"]["labels"]["find"] == "me"
        (text,) = board["data"].values()
        assert json.loads(text)["uid"] in dashboards.DASHBOARDS
