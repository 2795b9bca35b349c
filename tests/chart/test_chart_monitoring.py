"""Alerts and dashboards: their expressions are about series that exist, and do what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import dashboards
import pytest
import yaml
from chart_golden import CHART, render
from support.chart_pods import of_kind
from support.metric_names import series
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


# What scraping adds: Prometheus itself, and the PodMonitor.
SCRAPED = {"job", "instance", "namespace", "pod", "podium_component", "podium_release", "node"}


def exported() -> dict[str, frozenset[str]]:
    """Every series that Podium's services make, with its labels."""
    return series()


def used(expression: str) -> set[str]:
    return set(re.findall(r"([a-z_]+(?::[a-z_]+)?)\{", expression))


def wrong(expression: str) -> list[str]:
    """What an expression names that no service exports."""
    known = exported()
    found = sorted(used(expression) - set(known) - FOREIGN)
    labels: set[str] = set()
    for name, selector in re.findall(r"([a-z_]+(?::[a-z_]+)?)\{([^}]*)\}", expression):
        if name in known:
            labels |= known[name]
            named = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", selector))
            found += sorted(f"{name}{{{label}}}" for label in named - known[name] - SCRAPED)
    if not used(expression) & FOREIGN:
        for by in re.findall(r"\b(?:by|on|without) \(([^)]*)\)", expression):
            found += sorted(set(re.split(r",\s*", by)) - labels - SCRAPED)
    return found


def alerts() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, str]] = group["rules"]
    return found


def test_alerts_are_about_series_that_exist() -> None:
    for alert in alerts():
        assert used(alert["expr"]), alert["alert"]
        assert wrong(alert["expr"]) == [], alert["alert"]
        labels = re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values()))
        own = set().union(*(exported().get(name, set()) for name in used(alert["expr"])))
        assert set(labels) <= own | SCRAPED, alert["alert"]


@pytest.mark.parametrize("uid", dashboards.DASHBOARDS)
def test_panels_are_about_series_that_exist(uid: str) -> None:
    for expression in dashboards.expressions(uid):
        assert used(expression), expression
        assert wrong(expression) == [], expression


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('rate(podium_trainer_steps_totals{outcome="x"}[1m])', ["podium_trainer_steps_totals"]),
        ('podium_trainer_loss{jobs="x"}', ["podium_trainer_loss{jobs}"]),
        ('sum by (job_id, kind) (podium_trainer_loss{namespace="x"})', ["kind"]),
        ('sum by (le) (podium_judge_score_seconds_bucket{pod="x"})', []),
    ],
)
def test_an_expression_of_what_nobody_exports_is_found(expression: str, found: list[str]) -> None:
    assert wrong(expression) == found


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
