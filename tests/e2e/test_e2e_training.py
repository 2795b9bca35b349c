"""A cluster, the chart, and a job from outside; the tests are in the order of a first day."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dashboards
import httpx
import pytest
import torch
import yaml
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.cluster.jobset import job_name, wrap
from podium_controller.cluster.template import TrainerTemplate
from safetensors.torch import load_file
from support.cluster_jobs import (
    JOB,
    client_of,
    follow,
    outside,
    podium,
    reached,
    submit,
)
from support.custom_resources import MONITORING, defined
from support.kubernetes_cluster import RELEASE, Cluster, Installation, run
from support.prometheus_server import Prometheus, scraping

pytestmark = pytest.mark.timeout(2400)

# Float32, in which the order of additions is all that machines may differ in.
CLIENT_JOB = """
recovery_timeout_seconds: 1800
base_model: smollm2-135m-instruct
client: {{}}
training:
  steps: 1
  learning_rate: 2.0e-4
  dtype: float32
  lora: {{rank: 8}}
trainer: {{nodes: {nodes}}}
"""

# What a healthy job of three steps need not show.
MAY_BE_EMPTY = ('code!~"OK|CANCELLED"',)
METRICS = {
    "controller": 50071,
    "registry": 50072,
    "inference-default": 50073,
    "rollout": 50074,
    "judge": 50075,
    "trainer": 50076,
}


@pytest.fixture(scope="module")
def client(installation: Installation) -> Iterator[dict[str, str]]:
    """The environment of a client outside of the cluster."""
    with outside(installation) as environment:
        yield environment


def test_helm_test_passes(installation: Installation) -> None:
    assert "Phase:" in installation.cluster.helm("test", RELEASE, "--timeout", "5m")


def test_nobody_calls_without_the_token(client: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "podium.cli", "job", "list"],
        env={**client, "PODIUM_TOKEN": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr


def test_a_job_submitted_from_outside_trains_and_every_panel_shows_it(
    installation: Installation, client: dict[str, str], tmp_path: Path
) -> None:
    began = time.time()
    submit(client, "first", 3)
    with scraped(installation, "first", tmp_path) as prometheus:
        trainer = installation.cluster.trainer_of("first")
        assert fetched_by(installation, trainer) == ["smollm2-135m-instruct"]
        follow(installation, "first")
        assert empty_panels(installation.cluster.namespace, "first", prometheus, began) == []
    versions = json.loads(podium(client, "checkpoint", "list", "first", "-o", "json"))
    # Retention decides about version 0.
    assert {1, 2, 3} <= {int(v["manifest"]["version"]) for v in versions}


def fetched_by(installation: Installation, pod: str) -> list[str]:
    """The models that a pod downloads before it starts."""
    spec = json.loads(installation.cluster.kubectl("get", pod, "-o", "json"))["spec"]
    return [each["command"][3] for each in spec["initContainers"]]


@contextmanager
def scraped(installation: Installation, job_id: str, folder: Path) -> Iterator[Prometheus]:
    """Every pod, the job's trainer too, with the labels that the chart's PodMonitor gives."""
    cluster = installation.cluster
    with ExitStack() as stack:
        targets = []
        for component, port in METRICS.items():
            pod = (
                cluster.trainer_of(job_id) if component == "trainer" else cluster.pod_of(component)
            )
            labels = {
                "namespace": cluster.namespace,
                "pod": pod.removeprefix("pod/"),
                "podium_release": RELEASE,
                "podium_component": component,
            }
            targets.append((stack.enter_context(cluster.forward(pod, port)), labels))
        yield stack.enter_context(scraping(folder, targets))


def empty_panels(namespace: str, job_id: str, prometheus: Prometheus, began: float) -> list[str]:
    """The expressions of the dashboards that show nothing of a job."""
    variables = {
        "$namespace": namespace,
        "$release": RELEASE,
        "$job": job_id,
        "$__rate_interval": "30s",
    }
    empty = []
    for uid in dashboards.DASHBOARDS:
        for expression in dashboards.expressions(uid):
            for name, value in variables.items():
                expression = expression.replace(name, value)
            allowed = any(part in expression for part in MAY_BE_EMPTY)
            if not prometheus.series(expression, began, time.time()) and not allowed:
                empty.append(f"{uid}: {expression}")
    return empty


def test_its_trainer_is_gone_with_it(installation: Installation) -> None:
    installation.cluster.gone("jobs,pods", "podium.dev/job=first")


def test_its_checkpoint_is_read_back(client: dict[str, str], tmp_path: Path) -> None:
    from safetensors import safe_open

    podium(client, "checkpoint", "export", "first@3", str(tmp_path / "adapter"))
    with safe_open(tmp_path / "adapter" / "adapter_model.safetensors", "pt") as file:
        moved = [name for name in file.keys() if "lora_B" in name and file.get_tensor(name).any()]  # noqa: SIM118
    assert moved, "training moved nothing"


def test_the_policy_answers(client: dict[str, str]) -> None:
    answer = podium(client, "chat", "-m", "first@3", "--once", "Say hello.", "--max-tokens", "8")
    assert answer.strip()


def test_the_openai_api_answers_with_the_token_alone(installation: Installation) -> None:
    with installation.cluster.forward(f"svc/{RELEASE}-inference-default", 50083) as address:
        url = f"http://{address}/v1/chat/completions"
        body = {
            "model": "first@3",
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 4,
        }
        refused = httpx.post(url, json=body, timeout=60, trust_env=False)
        assert refused.status_code == 401
        key = {"Authorization": f"Bearer {installation.token}"}
        answered = httpx.post(url, json=body, headers=key, timeout=120, trust_env=False)
        assert answered.status_code == 200, answered.text
        # vLLM's routes for administration are not there, with a token or without.
        for route in ("pause", "resume", "update_weights", "collective_rpc", "sleep"):
            found = httpx.post(
                f"http://{address}/{route}", headers=key, timeout=60, trust_env=False
            )
            assert found.status_code == 404, route


def test_an_upgrade_in_the_middle_of_a_job_loses_no_step_and_keeps_the_secrets(
    installation: Installation, client: dict[str, str]
) -> None:
    cluster, token = installation.cluster, installation.token
    submit(client, "upgraded", 4)
    reached(installation, "upgraded", 1)
    password = cluster.secret(f"{RELEASE}-database", "password")
    cluster.helm(
        "upgrade",
        RELEASE,
        str(installation.chart),
        *installation.values,
        "--set",
        "judge.replicas=2,commonLabels.team=agents",
        "--set",
        "monitoring.podMonitor.enabled=true,monitoring.rules.enabled=true",
        "--wait",
        "--timeout",
        "15m",
    )
    assert installation.token == token
    assert cluster.secret(f"{RELEASE}-database", "password") == password
    budgets = cluster.names("poddisruptionbudgets")
    assert budgets == [f"poddisruptionbudget.policy/{RELEASE}-judge"]
    written = yaml.safe_load_all(cluster.helm("get", "manifest", RELEASE))
    monitoring = [each for each in written if each and each["kind"] in MONITORING]
    assert sorted(each["kind"] for each in monitoring) == sorted(MONITORING)
    for each in monitoring:
        assert stored(cluster, each)["spec"] == each["spec"]
    follow(installation, "upgraded")


PODS = ("controller", "registry", "rollout", "judge", "inference-default", "postgresql", "trainer")


def test_a_job_outlives_each_of_the_pods_in_turn(installation: Installation) -> None:
    cluster = installation.cluster
    with outside(installation) as client:
        submit(client, "deleted", len(PODS) + 2)
    for number, component in enumerate(PODS, 1):
        reached(installation, "deleted", number)
        pods = (
            [cluster.trainer_of("deleted")]
            if component == "trainer"
            else cluster.pods_of(component)
        )
        cluster.kubectl("delete", "--wait=false", *pods)
    follow(installation, "deleted")


def test_a_rollback_brings_the_first_release_back(installation: Installation) -> None:
    cluster, token = installation.cluster, installation.token
    cluster.helm("rollback", RELEASE, "1", "--wait", "--timeout", "15m")
    assert cluster.names("poddisruptionbudgets") == []
    assert cluster.names(",".join(MONITORING)) == []
    assert installation.token == token


def test_the_jobs_are_still_there(installation: Installation) -> None:
    """Every pod was new twice: what is left is what the database and the volumes hold."""
    with outside(installation) as client:
        assert {"first", "upgraded", "deleted"} <= set(
            podium(client, "job", "list", "-o", "name").split()
        )
        versions = json.loads(podium(client, "checkpoint", "list", "first", "-o", "json"))
        assert {1, 2, 3} <= {int(v["manifest"]["version"]) for v in versions}


def test_two_machines_take_the_step_of_one(installation: Installation, tmp_path: Path) -> None:
    with outside(installation) as environment:
        one, two = asyncio.run(trained_on(environment, (1, 2), tmp_path))
    assert one.keys() == two.keys()
    # B of a new adapter is 0, so what it holds is the step.
    moved = math.sqrt(sum(float(one[name].square().sum()) for name in one if "lora_B" in name))
    apart = math.sqrt(sum(float((one[name] - two[name]).square().sum()) for name in one))
    assert moved > 0
    # As much as Adam makes of rounding: tests/integration/test_trainer_ranks.py.
    assert apart <= 1e-4 * moved


async def trained_on(
    environment: Mapping[str, str], machines: Sequence[int], folder: Path
) -> list[dict[str, torch.Tensor]]:
    """The adapters after one step over the same trajectories, on so many machines each."""
    adapters = []
    async with client_of(environment) as client:
        stored = [each async for each in client.jobs.trajectories("first", step=1)]
        for nodes in machines:
            job_id = f"nodes-{nodes}"
            text = CLIENT_JOB.format(nodes=nodes)
            podium(dict(environment), "job", "submit", "-f", "-", "--id", job_id, text_in=text)
            await client.sessions.submit(job_id, groups_of(stored, job_id), request_id=job_id)
            await client.sessions.finish(job_id)
            podium(dict(environment), "job", "watch", job_id)
            podium(dict(environment), "checkpoint", "export", f"{job_id}@1", str(folder / job_id))
            adapters.append(load_file(folder / job_id / "adapter_model.safetensors"))
    return adapters


def groups_of(
    stored: Sequence[trajectory_pb2.Trajectory], job_id: str
) -> list[trajectory_pb2.Group]:
    """The groups of stored trajectories, as sampled from the start of another job."""
    groups: dict[str, trajectory_pb2.Group] = {}
    for number, trajectory in enumerate(stored):
        group = groups.setdefault(
            trajectory.group_id, trajectory_pb2.Group(id=f"group-{len(groups)}")
        )
        group.scenario.id = trajectory.scenario_id
        copy = group.trajectories.add()
        copy.CopyFrom(trajectory)
        # Rewards of an untrained model may all be equal, and teach nothing.
        copy.environment_reward = float(number % 3)
        for history in copy.histories:
            for span in history.tokens.spans:
                span.policy, span.weights_version = job_id, 0
    return list(groups.values())


def test_a_resource_trains_and_shows_it(installation: Installation) -> None:
    cluster = installation.cluster
    job = yaml.safe_load(JOB.format(steps=1))
    resource = {
        "apiVersion": "podium.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "resource", "namespace": cluster.namespace},
        "spec": {"job": job},
    }
    cluster.apply(resource)
    end = time.monotonic() + 900
    while (row := cluster.kubectl("get", "trainingjobs", "--no-headers").split())[1] != "Succeeded":
        assert row[1] not in ("Failed", "Cancelled"), cluster.state()
        assert time.monotonic() < end, cluster.state()
        time.sleep(2)
    assert row[:4] == ["resource", "Succeeded", "1", "1"]
    cluster.kubectl("delete", "trainingjob", "resource", "--timeout=60s")


def stored(cluster: Cluster, item: dict[str, Any]) -> dict[str, Any]:
    """The object of a kind and name as the API server has it."""
    kind, name = item["kind"], item["metadata"]["name"]
    found: dict[str, Any] = json.loads(cluster.kubectl("get", kind, name, "-o", "json"))
    return found


def test_objects_for_others_controllers_are_stored_as_they_are_written(
    installation: Installation, tmp_path: Path
) -> None:
    """KEDA's, LeaderWorkerSet's and JobSet's: here nothing acts on them."""
    cluster, kinds = installation.cluster, ("ScaledObject", "LeaderWorkerSet", "JobSet")
    scaling = "autoscaling.enabled=true,autoscaling.prometheusAddress=http://prometheus:9090"
    pools = ",".join(
        f"pools[{index}].{value}"
        for index, values in enumerate(
            (f"name=scaled,{scaling}", "name=spread,nodes=2,pipelineParallel=2")
        )
        for value in values.split(",")
    )
    api = ("--api-versions", "leaderworkerset.x-k8s.io/v1")
    text = cluster.helm("template", RELEASE, str(installation.chart), *api, "--set", pools)
    objects = [each for each in yaml.safe_load_all(text) if each and each["kind"] in kinds]
    trainers = json.loads(cluster.kubectl("get", "configmap", f"{RELEASE}-trainer", "-o", "json"))
    template = TrainerTemplate(yaml.safe_load(trainers["data"]["default.yaml"]), "nvidia.com/gpu")
    wishes = spec_pb2.TrainerSpec(nodes=2, gpus_per_node=1, queue="research")
    name = template.name("stored")
    objects.append(wrap(template.job("stored", wishes, name=job_name(name)), name))
    assert sorted(each["kind"] for each in objects) == sorted(kinds)
    with defined(cluster, *kinds):
        for each in objects:
            each["metadata"].pop("namespace", None)
            text = yaml.safe_dump(each)
            cluster.kubectl("apply", "--server-side", "-f", "-", text_in=text)
            assert stored(cluster, each)["spec"] == each["spec"]


def test_a_job_too_large_says_what_the_scheduler_says(installation: Installation) -> None:
    with outside(installation) as client:
        text = JOB.format(steps=1) + "trainer: {gpus_per_node: 8}\n"
        podium(client, "job", "submit", "-f", "-", "--id", "large", text_in=text)
        end = time.monotonic() + 120
        while "nvidia.com/gpu" not in (shown := podium(client, "job", "get", "large")):
            assert time.monotonic() < end, shown
            time.sleep(1)
        assert "TRAINER_UNSCHEDULABLE" in shown
        assert "Insufficient nvidia.com/gpu" in shown
        podium(client, "job", "cancel", "large")
    installation.cluster.gone("jobs,pods", "podium.dev/job=large")


@pytest.fixture
def gpus(installation: Installation) -> Iterator[None]:
    """GPUs of the cluster, or two that a node of the test's own cluster says it has."""
    nodes = json.loads(installation.cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    if any(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in nodes):
        yield
        return
    if not (tool := os.environ.get("PODIUM_CLUSTER_TOOL")):
        pytest.skip("no node has a GPU")
    # They stay: what comes after asks for them too.
    run([tool, "gpus", "2"])
    yield


def test_trainer_and_inference_take_a_gpu_each(installation: Installation, gpus: None) -> None:
    cluster = installation.cluster
    cluster.helm(
        "upgrade",
        RELEASE,
        str(installation.chart),
        *installation.values,
        "--set",
        # What computes is a CPU all the same, which takes merged weights faster.
        "poolDefaults.gpus=1,poolDefaults.weightMode=merged,trainer.gpus=1",
        "--wait",
        "--timeout",
        "15m",
    )
    with outside(installation) as client:
        submit(client, "on-gpus", 1)
    trainer, engine = cluster.trainer_of("on-gpus"), cluster.pod_of("inference-default")
    for pod, container in ((trainer, "trainer"), (engine, "inference")):
        spec = json.loads(cluster.kubectl("get", pod, "-o", "json"))["spec"]
        (limits,) = (c["resources"]["limits"] for c in spec["containers"] if c["name"] == container)
        assert limits["nvidia.com/gpu"] == "1", pod
        assert spec["nodeName"], pod
    follow(installation, "on-gpus")
