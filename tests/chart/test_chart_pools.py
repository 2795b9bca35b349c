"""Inference pools and the trainers of their jobs, as the chart makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from chart_golden import render
from podium.core.reasoning_formats import PARSERS
from podium.core.tool_formats import FORMATS
from podium.types.v1 import spec_pb2
from podium_controller.cluster.jobset import wrap
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.settings import Settings
from support.chart_pods import (
    KUBERNETES,
    env_of,
    of_kind,
    pods,
    trainer_job,
    trainer_jobs,
)
from support.custom_resources import SCHEMAS


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


def test_a_pool_renders_as_it_is_told() -> None:
    told = {
        "chatTemplate": "{{ messages[0].content }}$(x)",
        "reasoningParser": "qwen3",
        "toolFormat": "qwen3_coder",
        "toolParser": "hermes",
    }
    objects = render({"pools": [{"name": "a", **told}, {"name": "b"}]})
    prefix = "PODIUM_INFERENCE_"
    env = {
        pod.component: {e["name"]: e.get("value") for e in pod.spec["containers"][0]["env"]}
        for pod in pods(objects)
        if pod.component.startswith("inference-")
    }
    own = env["inference-a"]
    # As Kubernetes hands it on.
    assert own[f"{prefix}CHAT_TEMPLATE"] == "{{ messages[0].content }}$$(x)"
    assert own[f"{prefix}REASONING_PARSER"] == "qwen3"
    assert own[f"{prefix}TOOL_FORMAT"] == "qwen3_coder"
    assert own[f"{prefix}TOOL_PARSER"] == "hermes"
    assert not {"CHAT_TEMPLATE", "REASONING_PARSER", "TOOL_FORMAT", "TOOL_PARSER"} & {
        name.removeprefix(prefix) for name in env["inference-b"]
    }


def test_the_chart_names_the_formats_and_parsers_that_there_are() -> None:
    schema = json.loads(Path("charts/podium/values.schema.json").read_text())
    pool = schema["$defs"]["pool"]["properties"]
    assert pool["toolFormat"]["enum"] == ["auto", *sorted(FORMATS)]
    assert pool["reasoningParser"]["enum"] == ["", *sorted(PARSERS)]


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
    assert env_of("controller", render(values))["PODIUM_CONTROLLER_TRAINER_JOB_SET"] == use


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
    env = env_of("controller", render({"pools": pools, "controller": {"settings": settings}}))
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
    assert env_of("controller", render(values))["PODIUM_CONTROLLER_POOLS"] == expected
    assert env_of("rollout", render(values))["PODIUM_ROLLOUT_POOLS"] == expected


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
    env = env_of("controller", render(values))
    (made,) = (item for item in of_kind(render(values), "ConfigMap") if "a.yaml" in item["data"])
    for name, text in made["data"].items():
        (tmp_path / name).write_text(text)
    settings = Settings(pools=env["PODIUM_CONTROLLER_POOLS"], trainer_template=tmp_path)
    template = TrainerTemplate.of_pools(tmp_path, "nvidia.com/gpu", settings.pool_addresses())
    for pool in settings.pool_addresses():
        job = template.job("a-job", spec_pb2.TrainerSpec(), pool=pool)
        (download,) = job["spec"]["template"]["spec"]["initContainers"]
        assert download["name"] == f"model-{pool}"
