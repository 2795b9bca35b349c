"""The services read what the chart tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chart_golden import render
from helm_python import HelmError
from podium.kit.rpc.pools import parse_pools, parse_trainer_pools
from support.chart_pods import pods
from support.defaults import CLIENTS, SERVICES, settings_class


def containers(
    objects: list[dict[str, Any]], *, workers: bool = True
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each with its service; `workers` for nodes of a pool too that serve nothing."""
    for pod in pods(objects):
        if pod.component.startswith("nodes-") and not workers:
            continue
        for container in pod.spec["containers"]:
            if container["name"] in (*SERVICES, *CLIENTS):
                yield container["name"], container


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e.get("value", "from-a-secret") for e in container["env"]}


def test_every_variable_is_a_setting_and_is_accepted(
    objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for service, container in containers(objects):
        seen.add(service)
        kind = settings_class(service)
        prefix = f"PODIUM_{service.upper()}_"
        env = variables(container)
        assert len(env) == len(container["env"]), "a name stands there twice"
        for name, value in env.items():
            if name.startswith(prefix):
                assert name.removeprefix(prefix).lower() in kind.model_fields, name
            monkeypatch.setenv(name, value)
        settings = kind()
        assert settings.host == "0.0.0.0"
        assert settings.log_format == "json"
        for name in env:
            monkeypatch.delenv(name)
    assert seen - set(CLIENTS) == set(SERVICES)


def test_ports_are_the_services_own(objects: list[dict[str, Any]]) -> None:
    for service, container in containers(objects, workers=False):
        fields = settings_class(service).model_fields
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        expected = {"grpc": "port", "health": "health_port", "metrics": "metrics_port"}
        if service == "inference":
            expected["http"] = "http_port"
        if service in (*CLIENTS, "console"):
            del expected["grpc"]
        if service == "console":
            expected["http"] = "port"
        assert ports == {name: fields[field].default for name, field in expected.items()}


def test_peers_are_addressed_by_services_of_the_chart(objects: list[dict[str, Any]]) -> None:
    offered = {
        f"{o['metadata']['name']}.podium.svc.cluster.local:{port['port']}"
        for o in objects
        if o["kind"] == "Service"
        for port in o["spec"]["ports"]
    }
    for _, container in containers(objects):
        for name, value in variables(container).items():
            if name.endswith("_LEADER_ADDRESS"):
                assert value.split(".")[-1] == "podium", "of the namespace"
            elif name.endswith("_ADDRESS"):
                assert value in offered, name
            if name.endswith("_TRAINER_POOLS"):
                assert {each.address for each in parse_trainer_pools(value).values()} <= offered
            elif name.endswith("_POOLS"):
                assert set(parse_pools(value).values()) <= offered, name


def controller_env(values: dict[str, Any]) -> dict[str, str]:
    (container,) = (c for name, c in containers(render(values)) if name == "controller")
    return variables(container)


@pytest.mark.parametrize(
    ("size", "bytes_"), [("40Gi", 40 * 2**30), ("1Ti", 2**40), ("12345", 12345), ("0", 0)]
)
@pytest.mark.parametrize(
    ("what", "name"), [("trajectories", "TRAJECTORY"), ("evaluations", "EVALUATION")]
)
def test_how_long_what_is_stored_stays(what: str, name: str, size: str, bytes_: int) -> None:
    env = controller_env({"controller": {what: {"maxSize": size, "maxDays": 1.5}}})
    assert int(env[f"PODIUM_CONTROLLER_{name}_STORE_MAX_BYTES"]) == bytes_
    assert float(env[f"PODIUM_CONTROLLER_{name}_RETENTION_DAYS"]) == 1.5
    # Of the one, and not of the other.
    assert len([each for each in env if "RETENTION" in each or "STORE_MAX" in each]) == 2


def test_what_gpus_cost() -> None:
    env = controller_env({"controller": {"gpuHourPrice": 2.25}})
    assert float(env["PODIUM_CONTROLLER_GPU_HOUR_PRICE"]) == 2.25


def test_a_size_or_price_that_is_none_is_refused_and_none_is_stated_by_default() -> None:
    for wrong in (
        {"trajectories": {"maxSize": "40GB"}},
        {"trajectories": {"maxSize": "-1"}},
        {"trajectories": {"maxDays": -1}},
        {"evaluations": {"maxSize": "40GB"}},
        {"evaluations": {"maxDays": 36501}},
        {"gpuHourPrice": -1},
        {"gpuHourPrice": "2"},
    ):
        with pytest.raises(HelmError):
            render({"controller": wrong})
    stated = ("TRAJECTORY", "EVALUATION", "PRICE")
    assert not [n for n in controller_env({}) for each in stated if each in n]


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [({}, None), ({"workers": 4}, "4"), ({"workers": 4, "settings": {"WORKERS": 2}}, "2")],
)
def test_a_rollout_pod_has_the_worker_processes_that_are_asked_for(
    rollout: dict[str, Any], expected: str | None
) -> None:
    (container,) = (c for name, c in containers(render({"rollout": rollout})) if name == "rollout")
    assert variables(container).get("PODIUM_ROLLOUT_WORKERS") == expected


@pytest.mark.parametrize("workers", [0, -1, 257, 1.5, "2"])
def test_a_number_of_workers_that_is_none_is_refused(workers: object) -> None:
    with pytest.raises(HelmError):
        render({"rollout": {"workers": workers}})
