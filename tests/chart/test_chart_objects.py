"""The objects that the chart makes, for every case of ci/."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from chart_golden import CASES, GOLDEN, golden, render
from podium.local.launcher.layout import READINESS
from podium.types.v1 import spec_pb2
from podium_controller.cluster.environment_template import EnvironmentTemplate
from podium_controller.pools.projects import Projects
from support.chart_pods import (
    KUBERNETES,
    SELECTORS,
    environment_deployment,
    of_kind,
    pods,
    selects,
)
from support.custom_resources import SCHEMAS

# Kinds that have no namespace.
CLUSTER_WIDE = ("CustomResourceDefinition",)


@pytest.mark.parametrize("name", CASES)
def test_renders_are_the_golden_ones(name: str) -> None:
    assert golden(name) == (GOLDEN / f"{name}.yaml").read_text(), "run `make chart-golden`"


def test_no_golden_file_is_left_over() -> None:
    assert sorted(path.stem for path in Path(GOLDEN).glob("*.yaml")) == sorted(CASES)


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_in(version: str, objects: list[dict[str, Any]]) -> None:
    for item in objects:
        if item["kind"] in SCHEMAS:
            jsonschema.validate(item, SCHEMAS[item["kind"]])
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kubernetes_validate.validate(item, version, strict=True)


def test_the_validation_notices_what_kubernetes_does_not_know(
    objects: list[dict[str, Any]],
) -> None:
    deployment = of_kind(objects, "Deployment")[0]
    deployment["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.29", strict=True)


def test_with_secrets_of_ones_own_every_render_is_the_same() -> None:
    # GitOps renders again and again, and applies what differs.
    own = {"auth": {"existingSecret": "a"}, "database": {"existingSecret": "b"}}
    monitoring = {"monitoring": {part: {"enabled": True} for part in ("rules", "dashboards")}}
    assert render(own | monitoring) == render(own | monitoring)


def test_names_are_unique_and_in_the_release(objects: list[dict[str, Any]]) -> None:
    names = Counter((o["apiVersion"], o["kind"], o["metadata"]["name"]) for o in objects)
    assert [name for name, count in names.items() if count > 1] == []
    namespaces = {o["metadata"].get("namespace") for o in objects if o["kind"] not in CLUSTER_WIDE}
    assert namespaces == {"podium"}


def test_selectors_hold_what_never_changes(objects: list[dict[str, Any]]) -> None:
    for item in [*of_kind(objects, "Deployment"), *of_kind(objects, "StatefulSet")]:
        selector = item["spec"]["selector"]
        assert set(selector) == {"matchLabels"}
        assert set(selector["matchLabels"]) == SELECTORS
        assert selects(selector, item["spec"]["template"]["metadata"]["labels"])
    for service in of_kind(objects, "Service"):
        assert set(service["spec"]["selector"]) == SELECTORS


def test_every_service_selects_one_workload_and_ports_that_it_has(
    objects: list[dict[str, Any]],
) -> None:
    for service in of_kind(objects, "Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        chosen = [pod for pod in pods(objects) if selects(selector, pod.labels)]
        assert len(chosen) == 1, service["metadata"]["name"]
        (container,) = chosen[0].spec["containers"]
        offered = {port["name"]: port["containerPort"] for port in container["ports"]}
        for port in service["spec"]["ports"]:
            assert offered[port["targetPort"]] == port["port"]


def test_two_releases_side_by_side_have_nothing_in_common() -> None:
    first, second = render(name="one"), render(name="two")
    assert not {o["metadata"]["name"] for o in first} & {o["metadata"]["name"] for o in second}
    for item in first:
        selector = item.get("spec", {}).get("selector")
        if item["kind"] == "Service":
            selector = {"matchLabels": selector}
        if selector:
            assert not any(selects(selector, pod.labels) for pod in pods(second))


def test_labels_of_the_user_are_everywhere_but_in_selectors() -> None:
    objects = render({"commonLabels": {"team": "a"}, "podDefaults": {"labels": {"cost": "b"}}})
    assert {o["metadata"]["labels"]["team"] for o in objects} == {"a"}
    for pod in pods(objects):
        assert pod.labels["cost"] == "b"


def test_images_have_a_version(objects: list[dict[str, Any]]) -> None:
    for pod in pods(objects):
        # An environment's image is the job's to give.
        for container in pod.containers if pod.component != "environment" else ():
            name, _, tag = container["image"].rpartition(":")
            assert name, container["image"]
            assert tag not in ("", "latest")


def test_every_service_is_asked_for_by_its_name(objects: list[dict[str, Any]]) -> None:
    for pod in pods(objects):
        (container,) = pod.spec["containers"]
        service = container["name"]
        if service not in READINESS or "exec" in container["readinessProbe"]:
            continue
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        if pod.component.startswith("nodes-"):
            # It serves nothing else, and its health is bad until the engine is whole.
            assert container["readinessProbe"]["grpc"] == {"port": ports["health"]}
            continue
        # Of a job's trainers only the first has ports.
        for kind in ("startupProbe", "livenessProbe") if service != "trainer" else ():
            assert container[kind]["grpc"] == {"port": ports["health"]}
        asked = {"port": ports["health"]}
        if READINESS[service]:
            asked["service"] = READINESS[service]
        assert container["readinessProbe"]["grpc"] == asked


def test_a_probe_by_command_asks_the_same() -> None:
    for pod in pods(render({"probes": {"exec": True}})):
        (container,) = pod.spec["containers"]
        if container["name"] in READINESS:
            command = container["readinessProbe"]["exec"]["command"]
            assert command[:3] == ["python", "-m", "podium.probe"]
            assert command[4:] == [name for name in [READINESS[container["name"]]] if name]


def test_a_model_may_take_its_time_to_load() -> None:
    for pod in pods(render({"pools": [{"name": "a", "startupSeconds": 3000}]})):
        if pod.component == "inference-a":
            probe = pod.spec["containers"][0]["startupProbe"]
            assert probe["periodSeconds"] * probe["failureThreshold"] >= 3000


def test_each_kind_of_probe_has_a_period_of_its_own() -> None:
    periods = {"periodSeconds": 7, "startupPeriodSeconds": 3, "livenessPeriodSeconds": 29}
    for pod in pods(render({"probes": {**periods, "startupSeconds": 100}})):
        (container,) = pod.spec["containers"]
        if container["name"] not in READINESS:
            continue
        assert container["readinessProbe"]["periodSeconds"] == 7
        if container["name"] != "trainer":
            assert container["livenessProbe"]["periodSeconds"] == 29
            startup = container["startupProbe"]
            assert startup["periodSeconds"] == 3
            if pod.component != "inference-default":
                assert startup["failureThreshold"] == 34


def test_a_pod_outlives_its_drain() -> None:
    for pod in pods(render({"drainSeconds": 100})):
        if pod.spec["containers"][0]["name"] in READINESS.keys() - {"trainer"}:
            pause = int(pod.spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
            # Ten seconds is what run_service allows itself after the drain.
            assert pod.spec["terminationGracePeriodSeconds"] >= pause + 100 + 10


def test_budgets_are_for_what_has_replicas() -> None:
    assert of_kind(render(), "PodDisruptionBudget") == []
    values = {"controller": {"replicas": 2}, "judge": {"replicas": 2}}
    budgets = of_kind(render(values), "PodDisruptionBudget")
    assert [b["metadata"]["name"] for b in budgets] == ["podium-controller", "podium-judge"]


def test_a_scaled_service_has_no_replicas_of_its_own() -> None:
    scaling = {"enabled": True, "minReplicas": 2, "maxReplicas": 5}
    objects = render({"rollout": {"autoscaling": scaling}})
    (rollout,) = (
        d for d in of_kind(objects, "Deployment") if d["metadata"]["name"].endswith("rollout")
    )
    assert "replicas" not in rollout["spec"]
    (scaler,) = of_kind(objects, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == "podium-rollout"
    assert len(of_kind(objects, "PodDisruptionBudget")) == 1


def test_gpus_are_asked_for_by_their_resource() -> None:
    values = {
        "gpu": {"resourceName": "amd.com/gpu"},
        "trainer": {"gpus": 4},
        "pools": [{"name": "a", "gpus": 2}],
    }
    by_name = {pod.component: pod for pod in pods(render(values))}
    trainer = by_name["trainer"].spec["containers"][0]
    assert trainer["resources"]["limits"]["amd.com/gpu"] == "4"
    pool = by_name["inference-a"].spec["containers"][0]
    assert pool["resources"]["limits"]["amd.com/gpu"] == "2"
    env = {e["name"]: e.get("value") for e in pool["env"]}
    assert env["PODIUM_INFERENCE_TENSOR_PARALLEL_SIZE"] == "2"


def test_the_controller_reads_the_limits_of_projects_as_the_values_have_them(
    tmp_path: Path,
) -> None:
    projects = {"research": {"maxActiveJobs": 2, "maxPoolShare": 0.5}, "support": {}}
    objects = render({"projects": projects})
    (file,) = (
        item["data"]["projects.yaml"]
        for item in objects
        if item["kind"] == "ConfigMap" and item["metadata"]["name"] == "podium-projects"
    )
    path = tmp_path / "projects.yaml"
    path.write_text(file)
    limits = Projects.load(path).of("research")
    assert (limits.max_active_jobs, limits.max_gpus, limits.max_pool_share) == (2, None, 0.5)
    (controller,) = (pod for pod in pods(objects) if pod.component == "controller")
    mounts = {m["name"]: m["mountPath"] for m in controller.containers[0]["volumeMounts"]}
    env = {each["name"]: each.get("value") for each in controller.containers[0]["env"]}
    assert env["PODIUM_CONTROLLER_PROJECTS_FILE"] == f"{mounts['projects']}/projects.yaml"


def test_the_controller_can_make_environments_of_the_template(
    objects: list[dict[str, Any]],
) -> None:
    template = EnvironmentTemplate(environment_deployment(objects))
    spec = spec_pb2.EnvironmentSpec(name="mine", image="registry.example.com/mine:1", replicas=2)
    made = template.deployment("a-job", spec)
    service = template.service("a-job", {**made, "metadata": {**made["metadata"], "uid": "1"}})
    assert made["metadata"]["name"] == service["metadata"]["name"] == "podium-environment-a-job"
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == spec.image
    assert selects(made["spec"]["selector"], made["spec"]["template"]["metadata"]["labels"])
    for version in KUBERNETES:
        kubernetes_validate.validate(made, version, strict=True)
        kubernetes_validate.validate(service, version, strict=True)


def test_what_uninstall_leaves_is_what_values_say() -> None:
    def kept(values: dict[str, Any]) -> list[str]:
        return [
            f"{o['kind']} {o['metadata']['name']}"
            for o in render(values)
            if o["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
        ]

    assert kept({}) == [
        "PersistentVolumeClaim podium-postgresql",
        "PersistentVolumeClaim podium-registry",
        "Secret podium-database",
    ]
    go = {"persistence": {"keep": False}}
    assert kept({"registry": go, "database": {"internal": go}}) == []
