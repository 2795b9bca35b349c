"""What values the chart takes, and what it says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chart_schema
import pytest
import yaml
from chart_golden import CHART, case_names, render
from helm_python import HelmError, lint


def test_the_schema_and_the_table_are_those_of_the_values() -> None:
    assert (CHART / "values.schema.json").read_text() == (
        json.dumps(chart_schema.schema(), indent=1, ensure_ascii=False) + "\n"
    )
    page = (CHART / "README.md").read_text()
    assert chart_schema.readme(page) == page
    assert chart_schema.table() in page


def test_every_value_is_described() -> None:
    silent = []

    def walk(node: dict[str, Any], path: str) -> None:
        for name, child in node.get("properties", {}).items():
            if "properties" in child:
                walk(child, f"{path}{name}.")
            elif not child.get("description") and f"{path}{name}" != "global":
                silent.append(f"{path}{name}")

    walk(chart_schema.schema(), "")
    assert silent == []


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicaCount": 2}, "replicaCount"),
        ({"controller": {"replica": 2}}, "replica"),
        ({"controller": {"replicas": "2"}}, "replicas"),
        ({"image": {"tag": 1.10}}, "tag"),
        ({"image": {"tag": "latest"}}, "tag"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"auth": {"enabled": "yes"}}, "enabled"),
        ({"registry": {"storeUrl": "/data"}}, "storeUrl"),
        ({"registry": {"persistence": {"sise": "1Gi"}}}, "sise"),
        ({"rollout": {"resources": {"limits": {"cpu": "1"}, "limit": {}}}}, "limit"),
        ({"rollout": {"autoscaling": {"enabled": True, "max": 3}}}, "max"),
        ({"trainer": {"gpus": -1}}, "gpus"),
        ({"trainer": {"settings": {"row-tokens": 16}}}, "row-tokens"),
        ({"judge": {"pod": {"nodeselector": {}}}}, "nodeselector"),
        ({"pools": []}, "pools"),
        ({"pools": [{"model": "a/b"}]}, "name"),
        ({"pools": [{"name": "A"}]}, "name"),
        ({"pools": [{"name": "a", "gpu": 1}]}, "gpu"),
        ({"pools": [{"name": "a", "replicas": 65}]}, "replicas"),
        ({"pools": [{"name": "a", "autoscaling": {"maxReplicas": 0}}]}, "maxReplicas"),
        ({"pools": [{"name": "a", "autoscaling": {"max": 3}}]}, "max"),
        ({"pools": [{"name": "a", "autoscaling": {"prometheusAddress": "p:9090"}}]}, "prometheus"),
        ({"pools": [{"name": "a", "weightMode": "both"}]}, "weightMode"),
        ({"networkPolicy": {"egress": {"trainer": []}}}, "trainer"),
        ({"drainSeconds": -1}, "drainSeconds"),
        ({"projects": {"A": {}}}, "A"),
        ({"projects": {"a": {"maxJobs": 1}}}, "maxJobs"),
        ({"projects": {"a": {"maxPoolShare": 0}}}, "maxPoolShare"),
        ({"projects": {"a": {"maxPoolShare": 1.5}}}, "maxPoolShare"),
        ({"projects": {"a": {"maxJudgeTokens": -1}}}, "maxJudgeTokens"),
    ],
)
def test_wrong_values_are_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(HelmError) as refused:
        render(values)
    assert named in str(refused.value)


def test_two_pools_of_one_name_are_refused() -> None:
    with pytest.raises(HelmError, match="pools: the name 'a' stands there twice"):
        render({"pools": [{"name": "a"}, {"name": "a"}]})


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({}, "autoscaling of 'a' needs prometheusAddress"),
        ({"prometheusAddress": "http://p", "minReplicas": 5}, "minReplicas 5, which is more than"),
    ],
)
def test_a_scaled_pool_needs_what_it_is_scaled_by(scaling: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError, match=words):
        render({"pools": [{"name": "a", "autoscaling": {"enabled": True, **scaling}}]})


@pytest.mark.parametrize("name", case_names())
def test_lint_finds_nothing(name: str) -> None:
    values = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text())
    report = lint(CHART, values, strict=True, kube_version="v1.29.0")
    findings = [m for m in report["messages"] if "icon" not in m["error"]]
    assert (findings, report["errors"]) == ([], [])


def test_a_settings_value_keeps_its_digits() -> None:
    settings = {"MAX_BLOB_BYTES": 1 << 40, "GC_INTERVAL_SECONDS": 0.5, "REFLECTION": True}
    objects = render({"registry": {"settings": settings}})
    registry = next(
        o
        for o in objects
        if o["kind"] == "Deployment" and o["metadata"]["name"].endswith("registry")
    )
    env = {
        e["name"]: e.get("value")
        for e in registry["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["PODIUM_REGISTRY_MAX_BLOB_BYTES"] == "1099511627776"
    assert env["PODIUM_REGISTRY_GC_INTERVAL_SECONDS"] == "0.5"
    assert env["PODIUM_REGISTRY_REFLECTION"] == "true"


def test_the_chart_has_the_version_of_the_program() -> None:
    import podium

    chart = yaml.safe_load((Path(CHART) / "Chart.yaml").read_text())
    assert chart["appVersion"] == podium.__version__
