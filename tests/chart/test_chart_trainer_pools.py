"""Trainers that several jobs share, as the chart makes them."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from chart_golden import render
from helm_python import HelmError
from podium.kit.rpc.pools import parse_trainer_pools
from podium_controller.settings import Settings
from support.chart_pods import KUBERNETES, edges, env_of, of_kind, pods
from support.custom_resources import SCHEMAS
from support.metric_names import series

MODEL = "smollm2-135m-instruct"
OTHER = "Qwen/Qwen2.5-0.5B-Instruct"
POOLS = [{"name": "default", "model": MODEL}, {"name": "large", "model": OTHER}]


def rendered(*pools: dict[str, Any], **values: Any) -> list[dict[str, Any]]:
    named = [{"name": f"t{index}", "baseModel": MODEL, **pool} for index, pool in enumerate(pools)]
    return render({"pools": POOLS, "trainerPools": named, **values})


def test_without_trainer_pools_there_is_nothing_of_them() -> None:
    objects = render({})
    assert "PODIUM_CONTROLLER_TRAINER_POOLS" not in env_of("controller", objects)
    assert not [o for o in objects if "trainers" in o["metadata"]["name"]]
    assert "trainers" not in yaml.safe_dump(list(of_kind(objects, "NetworkPolicy")))


def test_a_trainer_pool_is_one_pod_that_no_second_one_stands_in_for() -> None:
    objects = rendered({"maxJobs": 8, "gpus": 1, "baseModel": OTHER, "revision": "abc"})
    (found,) = (o for o in of_kind(objects, "Deployment") if "trainers" in o["metadata"]["name"])
    assert (found["spec"]["replicas"], found["spec"]["strategy"]) == (1, {"type": "Recreate"})
    for version in KUBERNETES:
        kubernetes_validate.validate(found, version, strict=True)
    pod = found["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"].startswith("podium/trainer:")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["PODIUM_TRAINER_MAX_JOBS"] == "8"
    assert env["PODIUM_TRAINER_DEVICE"] == "cuda"
    assert env["PODIUM_MODEL_REVISION"] == "abc"
    (download,) = pod["initContainers"]
    assert download["command"][-3:] == [OTHER, "--revision", "abc"]


def test_the_controller_is_told_of_each_where_it_is() -> None:
    objects = rendered({}, {"baseModel": OTHER, "maxJobs": 2, "gpus": 1})
    told = env_of("controller", objects)["PODIUM_CONTROLLER_TRAINER_POOLS"]
    first, second = parse_trainer_pools(told).values()
    assert (first.base_model, first.max_jobs, first.gpus) == (MODEL, 4, 0)
    assert (second.base_model, second.max_jobs, second.gpus) == (OTHER, 2, 1)
    services = {o["metadata"]["name"] for o in of_kind(objects, "Service")}
    assert [each.address.split(".")[0] in services for each in (first, second)] == [True, True]
    assert Settings(trainer_pools=told).trainer_pools == {"t0": first, "t1": second}  # type: ignore[arg-type]


def test_what_a_trainer_pool_does_not_say_is_as_of_other_trainers() -> None:
    trainer = {
        "tagSuffix": "-cuda",
        "gpus": 8,
        "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "9Gi"}},
        "settings": {"TF32": True, "THREADS": 1},
        "scratch": "7Gi",
        "pod": {"priorityClassName": "training", "nodeSelector": {"a": "b"}},
    }
    own = {
        "settings": {"THREADS": 2},
        "resources": {"limits": {"memory": "5Gi"}},
        "pod": {"nodeSelector": {"gpu": "small"}, "tolerations": [{"key": "gpu"}]},
    }
    objects = rendered({}, own, trainer=trainer)
    first, second = (p for p in pods(objects) if p.component in ("trainers-t0", "trainers-t1"))
    for pod in (first, second):
        container = pod.spec["containers"][0]
        assert container["image"].endswith("-cuda")
        # The GPUs of a trainer of many processes are not its own.
        assert "nvidia.com/gpu" not in container["resources"]["limits"]
        assert pod.spec["priorityClassName"] == "training"
        assert {"name": "tmp", "emptyDir": {"sizeLimit": "7Gi"}} in pod.spec["volumes"]
    memory = [p.spec["containers"][0]["resources"]["limits"]["memory"] for p in (first, second)]
    assert memory == ["9Gi", "5Gi"]
    threads = [
        each["value"]
        for pod in (first, second)
        for each in pod.spec["containers"][0]["env"]
        if each["name"] == "PODIUM_TRAINER_THREADS"
    ]
    assert threads == ["1", "2"]
    assert (first.spec["nodeSelector"], second.spec["nodeSelector"]) == (
        {"a": "b"},
        {"a": "b", "gpu": "small"},
    )
    assert (first.spec.get("tolerations"), second.spec["tolerations"]) == (None, [{"key": "gpu"}])


def test_the_controller_reaches_it_and_it_reaches_the_registry_alone() -> None:
    found = edges(rendered({}))
    own = {edge for edge in found if "trainers-t0" in edge[:2]}
    assert own == {
        ("controller", "trainers-t0", 50056),
        ("trainers-t0", "registry", 50052),
    }


SCALED = {"autoscaling": {"enabled": True, "prometheusAddress": "http://prometheus:9090"}}


def test_one_that_scales_is_left_to_keda() -> None:
    objects = rendered({}, {**SCALED, "scratch": "9Gi"})
    found = {o["metadata"]["name"]: o for o in of_kind(objects, "Deployment")}
    assert found["podium-trainers-t0"]["spec"]["replicas"] == 1
    # An upgrade leaves it at what KEDA last said, and without a word it begins with one.
    assert "replicas" not in found["podium-trainers-t1"]["spec"]
    for version in KUBERNETES:
        kubernetes_validate.validate(found["podium-trainers-t1"], version, strict=True)
    (scaler,) = of_kind(objects, "ScaledObject")
    jsonschema.validate(scaler, SCHEMAS["ScaledObject"])
    spec = scaler["spec"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "podium-trainers-t1",
    }
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 1)
    assert spec["cooldownPeriod"] == 900
    assert "fallback" not in spec, "on an error KEDA would start or end it"
    told = parse_trainer_pools(env_of("controller", objects)["PODIUM_CONTROLLER_TRAINER_POOLS"])
    assert {name: each.scales_to_zero for name, each in told.items()} == {"t0": False, "t1": True}


def test_it_is_scaled_by_its_own_jobs_and_not_by_an_absence_of_numbers() -> None:
    named = [{"name": "a", "baseModel": MODEL, **SCALED}]
    objects = render({"pools": POOLS, "trainerPools": named}, name="one", namespace="ns")
    (scaler,) = of_kind(objects, "ScaledObject")
    (trigger,) = scaler["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    query = trigger["metadata"]["query"]
    asked = dict(re.findall(r"max\((\w+)\{([^}]*)\}\)", query))
    own = 'namespace="ns", podium_release="one", pool="a"'
    assert asked == {
        "podium_controller_trainer_pool_jobs": own,
        "podium_controller_trainer_pool_waiting": own,
    }
    for name in asked:
        assert "pool" in series()[name]


def test_all_may_scale_and_each_may_do_otherwise() -> None:
    defaults = {"autoscaling": {**SCALED["autoscaling"], "scaleDownSeconds": 300}}
    one = {"autoscaling": {"enabled": False}}
    two = {"autoscaling": {"scaleDownSeconds": 600}}
    objects = rendered({}, one, two, trainerPoolDefaults=defaults)
    found = {o["metadata"]["name"]: o["spec"] for o in of_kind(objects, "ScaledObject")}
    assert {name: spec["cooldownPeriod"] for name, spec in found.items()} == {
        "podium-trainers-t0": 300,
        "podium-trainers-t2": 600,
    }


def test_its_absence_is_noticed() -> None:
    objects = rendered({}, SCALED, monitoring={"rules": {"enabled": True}})
    (rules,) = of_kind(objects, "PrometheusRule")
    expected = [
        rule["labels"]["podium_component"]
        for group in rules["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("record") == "podium:replicas:expected"
    ]
    assert "trainers-t0" in expected
    # One that scales is meant to be absent at times.
    assert "trainers-t1" not in expected


@pytest.mark.parametrize(
    ("pools", "told"),
    [
        ([{"name": "a", "baseModel": MODEL}] * 2, "the name 'a' stands there twice"),
        ([{"name": "a", "baseModel": "other"}], "baseModel 'other', which none of the pools"),
        ([{"name": "a"}], "baseModel"),
        ([{"name": "A_b", "baseModel": MODEL}], "name"),
        ([{"name": "a", "baseModel": MODEL, "gpus": 2}], "gpus"),
        ([{"name": "a", "baseModel": MODEL, "maxJobs": 0}], "maxJobs"),
        ([{"name": "a", "baseModel": MODEL, "replicas": 2}], "replicas"),
        (
            [{"name": "a", "baseModel": MODEL, "autoscaling": {"enabled": True}}],
            "autoscaling of 'a' needs prometheusAddress",
        ),
        (
            [{"name": "a", "baseModel": MODEL, "autoscaling": {"maxReplicas": 2}}],
            "maxReplicas",
        ),
        (
            [{"name": "a", "baseModel": MODEL, "autoscaling": {"scaleDownSeconds": 5}}],
            "scaleDownSeconds",
        ),
    ],
)
def test_values_that_make_no_trainer_pool_are_refused(
    pools: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(HelmError) as raised:
        render({"pools": POOLS, "trainerPools": pools})
    assert told in str(raised.value)
