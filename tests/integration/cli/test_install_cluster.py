"""`podium install` from what kubectl says to the command and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import invoke
from support.fake_kubectl import FakeKubectl
from support.small_cluster import MONITORED, objects


@pytest.fixture
def kubectl(tmp_path: Path) -> FakeKubectl:
    double = FakeKubectl(tmp_path / "bin")
    double.objects = objects()
    double.raw = {"/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.2"}}
    double.resources = ["pods", "deployments.apps", *MONITORED]
    double.write()
    return double


async def test_a_ready_cluster_is_exit_code_0(kubectl: FakeKubectl, tmp_path: Path) -> None:
    done = await invoke("install", cwd=tmp_path, environment=kubectl.environment)
    assert done.code == 0, done.err
    command = done.out[done.out.index("helm install") :]
    assert "--values charts/podium/ci/one-gpu-values.yaml" in command
    assert "--set monitoring.podMonitor.enabled=true" in command
    assert "--create-namespace" not in command
    assert "podium login NAME --release podium --namespace podium" in done.err
    verbs = {tuple(call[1:3]) for call in kubectl.calls}
    assert not verbs & {("apply",), ("create",)}, "nothing is written"


async def test_a_cluster_that_lacks_something_is_exit_code_1(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    kubectl.objects = objects()[:1]
    kubectl.denied = ["create roles.rbac.authorization.k8s.io"]
    kubectl.refusals = {
        "get runtimeclasses": "Error from server (Forbidden): runtimeclasses is forbidden"
    }
    kubectl.write()
    arguments = ("install", "-n", "ml", "--release", "rl", "-o", "json")
    done = await invoke(*arguments, cwd=tmp_path, environment=kubectl.environment)
    assert done.code == 1
    told = json.loads(done.out)
    assert told["ready"] is False
    assert told["command"][:3] == ["helm", "install", "rl"]
    status = {each["name"]: each["status"] for each in told["findings"]}
    assert (status["rights"], status["storage"], status["nvidia.com/gpu"]) == ("fail", "fail", "ok")
    assert "not ready: rights, storage" in done.err


async def test_a_cluster_that_does_not_answer_is_exit_code_3(
    kubectl: FakeKubectl, tmp_path: Path
) -> None:
    kubectl.refusals = {"get": "Unable to connect to the server: dial tcp: i/o timeout"}
    kubectl.write()
    done = await invoke("install", cwd=tmp_path, environment=kubectl.environment)
    assert (done.code, done.out) == (3, "")
    assert "dial tcp: i/o timeout" in done.err
