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
from podium_controller.cluster.jobset import wrap
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.pools.projects import Projects
from podium_controller.settings import Settings
from support.chart_pods import (
    SELECTORS,
    environment_deployment,
    of_kind,
    pods,
    selects,
    trainer_job,
    trainer_jobs,
)
from support.custom_resources import SCHEMAS

# Kinds that have no namespace.
CLUSTER_WIDE = ("CustomResourceDefinition",)
KUBERNETES = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34")


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
        if pod.component != "test":
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
        asked = {"port": ports["health"], "service": READINESS[service]}
        assert container["readinessProbe"]["grpc"] == asked


def test_a_probe_by_command_asks_the_same() -> None:
    for pod in pods(render({"probes": {"exec": True}})):
        (container,) = pod.spec["containers"]
        if container["name"] in READINESS:
            command = container["readinessProbe"]["exec"]["command"]
            assert command[:3] == ["python", "-m", "podium.probe"]
            assert command[4] == READINESS[container["name"]]


def test_a_model_may_take_its_time_to_load() -> None:
    for pod in pods(render({"pools": [{"name": "a", "startupSeconds": 3000}]})):
        if pod.component == "inference-a":
            probe = pod.spec["containers"][0]["startupProbe"]
            assert probe["periodSeconds"] * probe["failureThreshold"] >= 3000


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


def test_a_pool_has_as_many_pods_as_it_is_told() -> None:
    objects = render({"pools": [{"name": "a", "replicas": 3}, {"name": "b"}]})
    sets = {s["metadata"]["name"]: s["spec"] for s in of_kind(objects, "StatefulSet")}
    assert sets["podium-inference-a"]["replicas"] == 3
    (budget,) = of_kind(objects, "PodDisruptionBudget")
    assert budget["metadata"]["name"] == "podium-inference-a"
    assert of_kind(objects, "ScaledObject") == []


def test_a_scaled_pool_is_left_to_keda() -> None:
    scaling = {
        "enabled": True,
        "minReplicas": 2,
        "waitingRequests": 5,
        "prometheusAddress": "http://prometheus:9090",
    }
    objects = render({"pools": [{"name": "a", "autoscaling": scaling}, {"name": "b"}]})
    sets = {s["metadata"]["name"]: s["spec"] for s in of_kind(objects, "StatefulSet")}
    assert "replicas" not in sets["podium-inference-a"]
    assert sets["podium-inference-b"]["replicas"] == 1
    (scaler,) = of_kind(objects, "ScaledObject")
    spec = scaler["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "podium-inference-a",
    }
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 4)
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["threshold"] == "5"
    assert len(of_kind(objects, "PodDisruptionBudget")) == 1


def test_a_pod_of_a_pool_finds_its_siblings() -> None:
    objects = render({"pools": [{"name": "a"}]})
    (pod,) = (pod for pod in pods(objects) if pod.component == "inference-a")
    env = {each["name"]: each for each in pod.spec["containers"][0]["env"]}
    name = "podium-inference-a.podium.svc.cluster.local"
    assert env["PODIUM_INFERENCE_POOL_ADDRESS"]["value"] == f"{name}:50053"
    where = env["PODIUM_INFERENCE_POD_IP"]["valueFrom"]
    assert where == {"fieldRef": {"fieldPath": "status.podIP"}}


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


def test_the_controller_can_make_trainers_of_the_template(objects: list[dict[str, Any]]) -> None:
    template = TrainerTemplate(trainer_job(objects), "nvidia.com/gpu")
    (controller,) = (pod for pod in pods(objects) if pod.component == "controller")
    owner = {"name": controller.name, "uid": "1"}
    for nodes in (1, 2):
        spec = spec_pb2.TrainerSpec(nodes=nodes, queue="research")
        job = template.job(
            "a-job", spec, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": owner}
        )
        assert job["metadata"]["name"] == "podium-trainer-a-job"
        assert job["spec"]["completions"] == nodes
        for version in KUBERNETES:
            kubernetes_validate.validate(job, version, strict=True)
        job_set = wrap(job, job["metadata"]["name"])
        jsonschema.validate(job_set, SCHEMAS["JobSet"])
        (member,) = job_set["spec"]["replicatedJobs"]
        alone = {**job, "metadata": {**job["metadata"], **member["template"]["metadata"]}}
        kubernetes_validate.validate({**alone, "spec": member["template"]["spec"]}, KUBERNETES[-1])
    env = {each["name"]: each.get("value") for each in controller.containers[0]["env"]}
    assert env["PODIUM_CONTROLLER_TRAINER_OWNER"] == f"apps/v1/Deployment/{controller.name}"


@pytest.mark.parametrize(("use", "verbs"), [("always", 3), ("auto", 3), ("never", 0)])
def test_the_controller_is_told_of_job_sets_and_may_make_them(use: str, verbs: int) -> None:
    values = {"trainer": {"jobSet": use}}
    (role,) = of_kind(render(values), "Role")
    given = [rule["verbs"] for rule in role["rules"] if rule["resources"] == ["jobsets"]]
    assert len([verb for each in given for verb in each]) == verbs
    assert env_of("controller", values)["PODIUM_CONTROLLER_TRAINER_JOB_SET"] == use


def env_of(component: str, values: dict[str, Any]) -> dict[str, str]:
    (found,) = (pod for pod in pods(render(values)) if pod.component == component)
    return {each["name"]: each.get("value") for each in found.containers[0]["env"]}


@pytest.mark.parametrize(
    ("modes", "settings", "jobs"),
    [
        (["merged"], {}, "1"),
        (["adapter"], {}, "16"),
        (["merged", "adapter", "merged"], {}, "18"),
        (["adapter", "adapter"], {"MAX_JOBS_PER_POOL": 4}, "8"),
        (["adapter"], {"MAX_ACTIVE_JOBS": 5}, "5"),
    ],
)
def test_as_many_jobs_run_as_the_pools_take(
    modes: list[str], settings: dict[str, int], jobs: str
) -> None:
    pools = [{"name": f"p{i}", "weightMode": mode} for i, mode in enumerate(modes)]
    env = env_of("controller", {"pools": pools, "controller": {"settings": settings}})
    assert env["PODIUM_CONTROLLER_MAX_ACTIVE_JOBS"] == jobs


@pytest.mark.parametrize(
    ("pool", "mode"),
    [
        ({}, "merged"),
        ({"gpus": 1}, "adapter"),
        ({"gpus": 1, "weightMode": "merged"}, "merged"),
        ({"weightMode": "adapter"}, "adapter"),
    ],
)
def test_pools_with_gpus_hold_adapters_unless_told_otherwise(
    pool: dict[str, Any], mode: str
) -> None:
    objects = render({"pools": [{"name": "a", **pool}]})
    (found,) = (each for each in pods(objects) if each.component == "inference-a")
    (engine,) = (each for each in found.containers if each["name"] == "inference")
    env = {each["name"]: each.get("value") for each in engine["env"]}
    assert env["PODIUM_INFERENCE_WEIGHT_MODE"] == mode


def test_controller_and_rollout_know_the_pools_by_the_same_names() -> None:
    values = {"pools": [{"name": "z"}, {"name": "a"}]}
    # In the order of the values: the first is for who names none.
    expected = ",".join(
        f"{name}=podium-inference-{name}.podium.svc.cluster.local:50053" for name in ("z", "a")
    )
    assert env_of("controller", values)["PODIUM_CONTROLLER_POOLS"] == expected
    assert env_of("rollout", values)["PODIUM_ROLLOUT_POOLS"] == expected


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


POOLS = [
    {"name": "a", "model": "org/a", "revision": "abc"},
    {
        "name": "b",
        "trainer": {
            "resources": {"limits": {"memory": "200Gi"}},
            "sharedMemory": "9Gi",
            "scratch": "70Gi",
        },
    },
]


def trainer_specs(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The specification of the pods of each pool's trainers."""
    jobs = trainer_jobs(render(values)).items()
    return {pool: job["spec"]["template"]["spec"] for pool, job in jobs}


def test_heavy_pods_have_shared_memory_and_their_own_pools_model_alone() -> None:
    specs = {pod.component: pod.spec for pod in pods(render({"pools": POOLS}))}
    trainers = trainer_specs({"pools": POOLS})
    for pool, fetched, revision in (
        ("a", ["org/a", "--revision", "abc"], "abc"),
        ("b", ["smollm2-135m-instruct"], None),
    ):
        for spec in (trainers[pool], specs[f"inference-{pool}"]):
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
            (container,) = spec["containers"]
            mounts = {m["name"]: m for m in container["volumeMounts"]}
            assert mounts["shm"]["mountPath"] == "/dev/shm"
            assert mounts["models"]["readOnly"]
            (download,) = spec["initContainers"]
            assert download["command"][3:] == fetched
            env = {each["name"]: each.get("value") for each in container["env"]}
            assert env.get("PODIUM_MODEL_REVISION") == revision


def test_a_pools_trainers_have_memory_of_their_own() -> None:
    resources = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "16Gi"}}
    specs = trainer_specs({"pools": POOLS, "trainer": {"resources": resources}})
    one, other = (specs[pool]["containers"][0]["resources"] for pool in ("a", "b"))
    assert one == resources
    assert other == {**resources, "limits": {"memory": "200Gi"}}
    sizes = {
        volume["name"]: volume.get("emptyDir", {}).get("sizeLimit")
        for volume in specs["b"]["volumes"]
    }
    assert (sizes["shm"], sizes["tmp"]) == ("9Gi", "70Gi")


def test_the_controller_has_a_trainer_for_each_of_its_pools(tmp_path: Path) -> None:
    values = {"pools": POOLS, "trainer": {"gpus": 2}}
    env = env_of("controller", values)
    (made,) = (item for item in of_kind(render(values), "ConfigMap") if "a.yaml" in item["data"])
    for name, text in made["data"].items():
        (tmp_path / name).write_text(text)
    settings = Settings(pools=env["PODIUM_CONTROLLER_POOLS"], trainer_template=tmp_path)
    template = TrainerTemplate.of_pools(tmp_path, "nvidia.com/gpu", settings.pool_addresses())
    for pool in settings.pool_addresses():
        job = template.job("a-job", spec_pb2.TrainerSpec(), pool=pool)
        (download,) = job["spec"]["template"]["spec"]["initContainers"]
        assert download["name"] == f"model-{pool}"


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
