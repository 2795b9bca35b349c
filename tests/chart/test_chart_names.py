"""Whatever a release or a pool is called: Kubernetes takes every name and label made of it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_golden import CHART, manifests, render
from helm_python import HelmError
from support.chart_pods import environment_deployment, of_kind, pods, trainer_jobs

Object = dict[str, Any]

LONGEST = "a" * 52 + "z"
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
# Of a Service, as Kubernetes before 1.34 has it; and of what a pod's hostname or volume may be.
SERVICE, PART = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"), re.compile(r"[-a-z0-9]{1,63}")
# A label of their pods is the name, a hyphen and ten characters; a LeaderWorkerSet's StatefulSets
# have the number of one of 64 groups besides.
LONGEST_NAMES = {"StatefulSet": 63 - 11, "LeaderWorkerSet": 63 - 11 - 3}

POOL = "p" * 16
EVERYTHING = {
    "gitops": {"enabled": True},
    "tracking": {"enabled": True, "secrets": [{"name": "s" * 63, "existingSecret": "x"}]},
    "monitoring": {part: {"enabled": True} for part in ("podMonitor", "rules", "dashboards")},
    "pools": [{"name": POOL}, {"name": "n" * 16, "nodes": 2}, {"name": "1e3"}, {"name": "true"}],
    "trainerPools": [{"name": "t" * 16, "baseModel": "smollm2-135m-instruct"}],
}


def labels(node: Any) -> Iterator[Any]:
    """The values of every label and label selector."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if key in ("labels", "matchLabels"):
            yield from value.values()
        elif isinstance(value, dict | list):
            yield from labels(value)


def assert_kubernetes_takes(objects: list[Object]) -> None:
    made = [*objects, *trainer_jobs(objects).values(), environment_deployment(objects)]
    for item in made:
        name = item["metadata"]["name"]
        assert isinstance(name, str)
        assert len(name) <= LONGEST_NAMES.get(item["kind"], 63)
        assert (SERVICE if item["kind"] == "Service" else PART).fullmatch(
            name.replace(".", "-") if item["kind"] == "CustomResourceDefinition" else name
        )
        assert isinstance(item["metadata"].get("namespace", ""), str)
        for value in labels(item):
            assert isinstance(value, str)
            assert LABEL.fullmatch(value), value
    for pod in pods(objects):
        for part in [*pod.containers, *pod.spec["volumes"]]:
            assert PART.fullmatch(part["name"])


@pytest.mark.parametrize(
    "name",
    # A number, or a boolean, to YAML that is not in quotes: `1e3` is one to Go's.
    [LONGEST, "7b-train", "v1.2-podium", "rl.team", "2048", "1e3", "true", "a" * 39 + ".b"],
)
def test_every_name_of_a_release_makes_names_that_kubernetes_takes(name: str) -> None:
    assert_kubernetes_takes(render(EVERYTHING, name=name))
    assert_kubernetes_takes(render(name=name))


@pytest.mark.parametrize("alias", ["podiumEu", "rl_train"])
def test_a_chart_that_has_this_one_as_a_dependency_may_call_it_as_it_likes(
    alias: str, tmp_path: Path
) -> None:
    needed = [{"name": "podium", "version": "*", "alias": alias}]
    chart = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": needed}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (tmp_path / "values.yaml").write_text(json.dumps({alias: EVERYTHING}))
    shutil.copytree(CHART, tmp_path / "charts" / "podium")
    text = manifests(folder=tmp_path)
    assert_kubernetes_takes([item for item in yaml.safe_load_all(text) if item])


@pytest.mark.parametrize("namespace", ["123456", "true", "n" * 63])
def test_every_namespace_is_a_text(namespace: str) -> None:
    objects = render(EVERYTHING, namespace=namespace)
    assert_kubernetes_takes(objects)
    for binding in of_kind(objects, "RoleBinding"):
        assert binding["subjects"][0]["namespace"] == namespace


def test_names_that_are_numbers_to_gos_yaml_stand_in_quotes() -> None:
    # The reader of these tests takes `1e3` for a text; what reads for Kubernetes does not.
    text = manifests(name="1e3", namespace="1e5")
    for line in text.splitlines():
        assert line.split(": ")[-1].strip("[]} ") not in ("1e3", "1e5"), line


@pytest.mark.parametrize(
    ("name", "pool", "wanted"),
    [
        ("team-a", "default", ["team-a-podium-controller", "team-a-podium-inference-default"]),
        ("a" * 18, POOL, [f"{'a' * 18}-podium-inference-{POOL}"]),
        ("a" * 33, "p", [f"{'a' * 33}-podium-{part}" for part in ("postgresql", "environment")]),
        # Cut off, as the claims of releases that there are already.
        (LONGEST, "p", [f"{'a' * 40}-{part}" for part in ("postgresql", "registry", "database")]),
    ],
)
def test_a_name_that_kubernetes_takes_is_not_changed(
    name: str, pool: str, wanted: list[str]
) -> None:
    names = {o["metadata"]["name"] for o in render({"pools": [{"name": pool}]}, name=name)}
    assert set(wanted) <= names


@pytest.mark.parametrize(
    "values",
    [
        {"nameOverride": "Podium"},
        {"fullnameOverride": "Podium"},
        {"nameOverride": "7"},
        {"fullnameOverride": "a_b"},
        {"fullnameOverride": "7b"},
        {"fullnameOverride": "x" * 41},
    ],
)
def test_names_that_kubernetes_would_refuse_are_refused_by_their_value(
    values: dict[str, str],
) -> None:
    ((field, given),) = values.items()
    with pytest.raises(
        HelmError, match=f"{field}: got '{given}'; allowed are up to 40 small letters"
    ):
        render(values)


@pytest.mark.parametrize(
    "values",
    [
        {"commonLabels": {"app.kubernetes.io/part-of": "ml-platform"}},
        {"test": {"pod": {"labels": {"app.kubernetes.io/name": "rl"}}}},
        {"podDefaults": {"labels": {"app.kubernetes.io/component": "rl"}}},
        {"judge": {"pod": {"labels": {"app.kubernetes.io/instance": "rl"}}}},
    ],
)
def test_labels_by_which_objects_are_found_cannot_be_given_away(values: dict[str, Any]) -> None:
    with pytest.raises(HelmError, match=r"labels: 'app.kubernetes.io/.* is Podium's own"):
        render(values)


def test_a_label_stands_once_and_theirs_wins() -> None:
    version = "app.kubernetes.io/version"
    values = {
        "commonLabels": {version: "2026.11", "team": "all"},
        "podDefaults": {"labels": {"team": "rl"}},
        "monitoring": {"podMonitor": {"enabled": True, "labels": {"team": "watch"}}},
    }
    objects = render(values)
    assert {o["metadata"]["labels"][version] for o in objects} == {"2026.11"}
    assert {pod.labels["team"] for pod in pods(objects)} == {"rl"}
    (monitor,) = of_kind(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["team"] == "watch"


def test_what_watches_may_have_the_labels_that_somebody_elses_prometheus_asks_for() -> None:
    wanted = {"app.kubernetes.io/part-of": "kube-prometheus", "app.kubernetes.io/instance": "k8s"}
    watching = ("podMonitor", "rules", "dashboards")
    values = {"monitoring": {each: {"enabled": True, "labels": wanted} for each in watching}}
    objects = render(values)
    for kind in ("PodMonitor", "PrometheusRule"):
        (found,) = of_kind(objects, kind)
        assert wanted.items() <= found["metadata"]["labels"].items()
    boards = [o for o in of_kind(objects, "ConfigMap") if "-dashboard-" in o["metadata"]["name"]]
    assert boards
    assert all(wanted.items() <= each["metadata"]["labels"].items() for each in boards)
