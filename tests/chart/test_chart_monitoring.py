"""Alerts and dashboards: their expressions are about series that exist, and do what they say."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import dashboards
import pytest
import yaml
from chart_golden import CHART, render
from support.chart_pods import of_kind
from support.metric_names import series
from support.programs import program

RULES = CHART / "files" / "rules.yaml"

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
    "vllm:num_preemptions_total",
    "vllm:inter_token_latency_seconds_bucket",
    "process_cpu_seconds_total",
    # Prometheus' own.
    "ALERTS",
    # The DCGM exporter's.
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    # Of the kubelets.
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
}


NAME = r"([a-zA-Z_:][a-zA-Z0-9_:]*)"
# Grafana's ids of units that are used.
UNITS = {
    *("none", "short", "percent", "percentunit", "s", "bytes", "mbytes", "Bps", "reqps", "sci"),
    "watt",
    "h",
    "currencyUSD",
}
# What scraping adds: Prometheus itself, and the PodMonitor.
SCRAPED = {
    "job",
    "instance",
    "namespace",
    "pod",
    "podium_component",
    "podium_release",
    "node",
    "persistentvolumeclaim",
}


@cache
def exported() -> dict[str, frozenset[str]]:
    """Every series that Podium's services make and the rules record, with its labels."""
    found = dict(series())
    for rule in rules():
        if "record" in rule:
            by = re.search(r"by \(([^)]*)\)", rule["expr"])
            inner = (found[name] for name in used(rule["expr"]) if ":" in name)
            labels = re.split(r",\s*", by[1]) if by else set().union(*inner)
            found[rule["record"]] = frozenset(labels)
    return found | {"podium:replicas:expected": frozenset({"podium_component"})}


def used(expression: str) -> set[str]:
    return set(re.findall(NAME + r"\{", expression))


def wrong(expression: str) -> list[str]:
    """What an expression names that no service exports."""
    known = exported()
    found = sorted(used(expression) - set(known) - FOREIGN)
    labels: set[str] = set()
    for name, selector in re.findall(NAME + r"\{([^}]*)\}", expression):
        if name in known:
            labels |= known[name]
            named = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\"", selector))
            found += sorted(f"{name}{{{label}}}" for label in named - known[name] - SCRAPED)
    if not used(expression) & FOREIGN:
        for by in re.findall(r"\b(?:by|on|without) \(([^)]*)\)", expression):
            found += sorted(set(re.split(r",\s*", by)) - {""} - labels - SCRAPED)
    return found


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def test_rules_are_about_series_that_exist() -> None:
    for rule in rules():
        assert used(rule["expr"]), rule
        assert wrong(rule["expr"]) == [], rule
        labels = re.findall(r"\$labels\.(\w+)", " ".join(rule.get("annotations", {}).values()))
        own = set().union(*(exported().get(name, set()) for name in used(rule["expr"])))
        assert set(labels) <= own | SCRAPED, rule


@pytest.mark.parametrize("uid", dashboards.BOARDS)
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
        # Prometheus' client gives no sum of what may be below zero.
        (
            'podium_rollout_environment_reward_sum{pod="x"}',
            ["podium_rollout_environment_reward_sum"],
        ),
    ],
)
def test_an_expression_of_what_nobody_exports_is_found(expression: str, found: list[str]) -> None:
    assert wrong(expression) == found


def test_the_dashboards_are_written() -> None:
    for uid in dashboards.BOARDS:
        text = (dashboards.FOLDER / f"podium-{uid}.json").read_text()
        assert json.loads(text) == dashboards.dashboard(uid), "run `make dashboards`"
    assert len(list(dashboards.FOLDER.iterdir())) == len(dashboards.BOARDS)


@pytest.mark.parametrize("uid", dashboards.BOARDS)
def test_every_panel_is_described_and_has_a_unit(uid: str) -> None:
    board = dashboards.dashboard(uid)
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["description"].endswith(".")
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in UNITS
        if panel["type"] == "stat":
            # Without steps of its own Grafana takes 80 and more, of anything, for bad.
            assert defaults["color"] == {"mode": "thresholds"}
            values = [step["value"] for step in defaults["thresholds"]["steps"]]
            assert values[0] is None
            assert values[1:] == sorted(values[1:])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


@pytest.mark.parametrize("uid", dashboards.BOARDS)
def test_panels_and_annotations_are_about_one_release(uid: str) -> None:
    for expression in dashboards.expressions(uid):
        for name, selector in re.findall(NAME + r"\{([^}]*)\}", expression):
            assert 'namespace="$namespace"' in selector, expression
            # A claim has no release of ours; a GPU's pod is looked up, as the next test shows.
            if not name.startswith(("DCGM_", "kubelet_")):
                assert 'podium_release="$release"' in selector, expression


@pytest.mark.parametrize("uid", dashboards.BOARDS)
def test_a_panel_that_shows_traces_asks_for_buckets_of_podiums_own(uid: str) -> None:
    # Prometheus' client writes exemplars with a histogram's buckets, not with its sum or count.
    for panel in dashboards.panels_of(uid):
        if panel.exemplars:
            assert any(re.search(r"podium_\w+_bucket\{", each) for each, _ in panel.queries), panel


def test_the_time_to_take_a_version_leads_to_its_traces() -> None:
    board = dashboards.dashboard("pool")
    (panel,) = [each for each in board["panels"] if each["title"] == "Time to take a version"]
    asked = [each["expr"] for each in panel["targets"] if each["exemplar"]]
    assert len(asked) == 1
    assert "podium_inference_policy_load_seconds_bucket{" in asked[0]


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


def boards(
    name: str = "one", namespace: str = "ns", own: dict[str, Any] | None = None, **more: Any
) -> dict[str, dict[str, Any]]:
    """A release's dashboards as Grafana's sidecar finds them, by file."""
    monitoring = {"dashboards": {"enabled": True, "labels": {"find": "me"}}} | more
    values = {"monitoring": monitoring, **(own or {})}
    objects = of_kind(render(values, name=name, namespace=namespace), "ConfigMap")
    found = {}
    for each in objects:
        if "dashboard" in each["metadata"]["name"]:
            assert each["metadata"]["labels"]["find"] == "me"
            found |= {file: json.loads(text) for file, text in each["data"].items()}
    return found


def test_two_releases_share_a_grafana() -> None:
    releases = [boards(), boards(name="two"), boards(namespace="other"), boards(name="r" * 50)]
    for each in releases:
        assert len(each) == len(dashboards.BOARDS)
    files = [file for each in releases for file in each]
    uids = [board["uid"] for each in releases for board in each.values()]
    titles = [board["title"] for each in releases for board in each.values()]
    for unique in (files, uids, titles):
        assert len(set(unique)) == len(unique)
    # Grafana's own rule.
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,40}", uid) for uid in uids)
    assert boards() == releases[0], "an upgrade makes the same ones"
    for each in releases:
        for board in each.values():
            text = json.dumps(board)
            for word in ("RELEASE_", "CONSOLE_URL", "RUNBOOK_URL"):
                assert word not in text


def test_two_aliases_in_one_release_have_dashboards_of_their_own() -> None:
    """As dependencies of a chart; the one that is called podium keeps what links name."""
    releases = [boards(), *(boards(own={"nameOverride": name}) for name in ("lab", "prod"))]
    for unique in ("uid", "title"):
        found = [board[unique] for each in releases for board in each.values()]
        assert len(set(found)) == len(found)
    files = [file for each in releases for file in each]
    assert len(set(files)) == len(files)
    assert boards(own={"nameOverride": "podium"}) == releases[0]
    # Links to other dashboards find theirs by the id in a tag.
    for each in releases:
        (tag,) = {tag for board in each.values() for tag in board["tags"] if tag != "podium"}
        assert all(f"podium-{tag}-" in board["uid"] for board in each.values())


def test_a_dashboard_goes_into_the_folder_that_the_values_name() -> None:
    annotations = {"grafana_folder": "Podium"}
    values = {"monitoring": {"dashboards": {"enabled": True, "annotations": annotations}}}
    made = [c for c in of_kind(render(values), "ConfigMap") if "dashboard" in c["metadata"]["name"]]
    assert len(made) == len(dashboards.BOARDS)
    for each in made:
        assert each["metadata"]["annotations"] == annotations


def test_who_scrapes_without_the_operator_is_told_the_labels(tmp_path: Path) -> None:
    page = (CHART.parents[1] / "docs" / "operate.md").read_text()
    (block,) = re.findall(r"^    scrape_configs:\n(?:     .*\n)+", page, re.MULTILINE)
    (scrape,) = yaml.safe_load(block)["scrape_configs"]
    # Which Debian's promtool is built without.
    assert scrape.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    path = tmp_path / "prometheus.yaml"
    path.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    command = [program("promtool", "prometheus"), "check", "config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    given = {r["target_label"]: r["source_labels"] for r in scrape["relabel_configs"][3:]}
    (monitor,) = of_kind(render({"monitoring": {"podMonitor": {"enabled": True}}}), "PodMonitor")
    for each in monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]:
        assert given[each["targetLabel"]] == each["sourceLabels"]
    # The operator gives these by itself.
    assert {"namespace", "pod"} <= set(given)


def test_a_dashboard_begins_with_its_own_release() -> None:
    for board in boards().values():
        chosen = {v["name"]: v.get("current", {}).get("value") for v in board["templating"]["list"]}
        assert (chosen["namespace"], chosen["release"]) == ("ns", "one")
        assert {"datasource", "tempo", "loki"} <= set(chosen)


def links(board: dict[str, Any]) -> dict[str, str]:
    parts = [board, *board["panels"]]
    return {link["title"]: link.get("url", "") for p in parts for link in p.get("links", [])}


def test_dashboards_link_to_traces_logs_console_and_runbooks() -> None:
    more = {
        "dashboards": {"enabled": True, "labels": {"find": "me"}, "consoleUrl": "https://c"},
        "rules": {"runbookBaseUrl": "https://docs/"},
    }
    known = {path.stem for path in (CHART.parents[1] / "docs/runbooks").glob("*.md")}
    linked = set()
    for board in boards(**more).values():
        found = links(board)
        assert found["Console"].startswith("https://c")
        assert found["Runbooks"] == "https://docs/docs/runbooks/README.md"
        for title, datasource in (("Traces", "${tempo}"), ("Logs", "${loki}")):
            panes = found[title].partition("panes=")[2]
            (pane,) = json.loads(unquote(panes)).values()
            assert pane["datasource"] == datasource
        for title, url in found.items():
            if title.startswith("Runbook: "):
                name = title.removeprefix("Runbook: ")
                assert url == f"https://docs/docs/runbooks/{name}.md"
                linked.add(name)
    assert linked <= known
    # Where none is named, no link leads nowhere.
    for board in boards().values():
        assert not [t for t in links(board) if t.startswith("Runbook") or t == "Console"]


def test_panels_of_one_job_are_about_that_job() -> None:
    for panel in dashboards.panels_of("job"):
        for expression, _ in panel.queries:
            assert re.search(r'(job_id|policy)="\$job"', expression), expression
