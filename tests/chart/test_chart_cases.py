"""What the values of each case of ci/ become; golden files show two cases of them alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from chart_golden import CHART
from support.chart_pods import Pod, of_kind, pods

Object = dict[str, Any]
VARIABLES = {
    "dtype": "PODIUM_INFERENCE_DTYPE",
    "maxModelLen": "PODIUM_INFERENCE_MAX_MODEL_LEN",
    "revision": "PODIUM_MODEL_REVISION",
}


@pytest.fixture
def values(request: pytest.FixtureRequest, objects: list[Object]) -> Object:
    """What the case of `objects` sets."""
    name = request.node.callspec.params["objects"]
    read: Object = yaml.safe_load((CHART / "ci" / f"{name}-values.yaml").read_text()) or {}
    return read


def variables(container: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


def assert_asks_for(pod: Pod, container: Object, wanted: Object) -> None:
    """`wanted` is a pool's or the trainer's part of the values."""
    resources, asked = container["resources"], wanted.get("resources", {})
    assert asked.get("requests", {}).items() <= resources["requests"].items()
    limits = {**asked.get("limits", {})}
    if wanted.get("gpus"):
        limits["nvidia.com/gpu"] = str(wanted["gpus"])
    assert limits.items() <= resources["limits"].items()
    assert container["image"].endswith(wanted.get("tagSuffix", ""))
    sizes = {
        each["name"]: each.get("emptyDir", {}).get("sizeLimit") for each in pod.spec["volumes"]
    }
    for setting, volume in (("sharedMemory", "shm"), ("scratch", "tmp")):
        if setting in wanted:
            assert sizes[volume] == wanted[setting]


def test_every_pod_goes_where_the_values_say(objects: list[Object], values: Object) -> None:
    defaults = values.get("podDefaults", {})
    for pod in pods(objects):
        for key in ("tolerations", "nodeSelector", "runtimeClassName"):
            if key in defaults:
                assert pod.spec[key] == defaults[key], pod.name


def test_a_pool_is_what_the_values_say(objects: list[Object], values: Object) -> None:
    for pool in values.get("pools", []):
        components = (f"inference-{pool['name']}", f"nodes-{pool['name']}")
        found = [pod for pod in pods(objects) if pod.component in components]
        assert found
        for pod in found:
            (container,) = pod.spec["containers"]
            assert_asks_for(pod, container, pool)
            given = variables(container)
            for setting, variable in VARIABLES.items():
                if setting in pool:
                    assert given[variable] == str(pool[setting])
            for name, value in pool.get("settings", {}).items():
                assert json.loads(given[f"PODIUM_INFERENCE_{name}"]) == value


def test_a_trainer_is_what_the_values_say(objects: list[Object], values: Object) -> None:
    wanted = values.get("trainer", {})
    found = [pod for pod in pods(objects) if pod.component == "trainer"]
    assert len(found) == len(values.get("pools", [{}]))
    for pod in found:
        (container,) = pod.spec["containers"]
        assert_asks_for(pod, container, wanted)
        given = variables(container)
        # On a node without one it would train on the CPU, unsaid.
        assert given.get("PODIUM_TRAINER_DEVICE") == ("cuda" if wanted.get("gpus") else None)
        for name, value in wanted.get("settings", {}).items():
            assert json.loads(given[f"PODIUM_TRAINER_{name}"]) == value


def test_who_fetches_models_may_go_where_the_values_say(
    objects: list[Object], values: Object
) -> None:
    allowed = values.get("networkPolicy", {}).get("egress", {}).get("models", [])
    policies = {
        item["metadata"]["name"]: item["spec"] for item in of_kind(objects, "NetworkPolicy")
    }
    for name in ("podium-inference", "podium-trainer"):
        for rule in allowed:
            assert rule in policies[name]["egress"]


def test_volumes_are_of_the_class_that_the_values_say(
    objects: list[Object], values: Object
) -> None:
    claims = {
        item["metadata"]["name"]: item["spec"] for item in of_kind(objects, "PersistentVolumeClaim")
    }
    for name, wanted in (
        ("podium-models", values.get("modelCache", {}).get("persistence", {})),
        ("podium-registry", values.get("registry", {}).get("persistence", {})),
        (
            "podium-postgresql",
            values.get("database", {}).get("internal", {}).get("persistence", {}),
        ),
    ):
        if "storageClass" in wanted:
            assert claims[name]["storageClassName"] == wanted["storageClass"]
        if "size" in wanted:
            assert claims[name]["resources"]["requests"]["storage"] == wanted["size"]
        if "accessMode" in wanted:
            assert claims[name]["accessModes"] == [wanted["accessMode"]]
