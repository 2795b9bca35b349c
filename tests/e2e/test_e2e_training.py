"""A cluster, the chart, and a job from outside; the tests are in the order of a first day."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dashboards
import httpx
import pytest
import torch
import yaml
from podium import AsyncClient
from podium.sdk import Addresses
from podium.types.v1 import trajectory_pb2
from safetensors.torch import load_file
from support.kubernetes_cluster import RELEASE, Installation, run
from support.prometheus_server import Prometheus, scraping

pytestmark = pytest.mark.timeout(2400)

JOB = """
recovery_timeout_seconds: 1800
base_model: smollm2-135m-instruct
environment: {{name: email_search, config: {{actions: [search, select]}}}}
rollout:
  group_size: 4
  groups_per_step: 2
  sampling: {{temperature: 1.0, max_tokens: 16}}
  episode: {{max_turns: 2}}
training:
  steps: {steps}
  learning_rate: 2.0e-4
  lora: {{rank: 8}}
  loss: {{kl_coefficient: 0.01}}
"""

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

ENDED = {"succeeded", "failed", "cancelled"}

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


SERVICES = {
    "PODIUM_ADDRESS": ("controller", 50051),
    "PODIUM_REGISTRY_ADDRESS": ("registry", 50052),
    "PODIUM_INFERENCE_ADDRESS": ("inference-default", 50053),
    "PODIUM_ROLLOUT_ADDRESS": ("rollout", 50054),
}


@contextmanager
def outside(
    installation: Installation, variables: Sequence[str] = tuple(SERVICES)
) -> Iterator[dict[str, str]]:
    """As `client`, to the pods that answer now."""
    with ExitStack() as stack:
        addresses = {}
        for variable in variables:
            component, port = SERVICES[variable]
            forward = installation.cluster.forward(f"svc/{RELEASE}-{component}", port)
            addresses[variable] = stack.enter_context(forward)
        yield {**os.environ, **addresses, "PODIUM_TOKEN": installation.token}


def client_of(environment: Mapping[str, str]) -> AsyncClient:
    return AsyncClient(
        Addresses(
            controller=environment["PODIUM_ADDRESS"],
            registry=environment["PODIUM_REGISTRY_ADDRESS"],
            token=environment["PODIUM_TOKEN"],
        )
    )


def submit(client: dict[str, str], job_id: str, steps: int) -> None:
    podium(client, "job", "submit", "-f", "-", "--id", job_id, text_in=JOB.format(steps=steps))


def follow(installation: Installation, job_id: str) -> None:
    """Waits until a job has ended; it must have succeeded, with every step once."""
    job = until(installation, job_id, lambda job: job["state"] in ENDED)
    with outside(installation, ["PODIUM_ADDRESS"]) as client:
        steps = json.loads(podium(client, "job", "steps", job_id, "-o", "json"))
    wanted = int(job["spec"]["training"]["steps"])
    assert [int(step["number"]) for step in steps] == list(range(1, wanted + 1))


def reached(installation: Installation, job_id: str, steps: int) -> None:
    """Waits until a job has done that many steps."""
    until(installation, job_id, lambda job: int(job.get("completed_steps", 0)) >= steps)


def until(
    installation: Installation,
    job_id: str,
    condition: Callable[[dict[str, Any]], bool],
    *,
    within: float = 1200,
) -> dict[str, Any]:
    """The job once the condition holds, through a controller that comes and goes."""
    end = time.monotonic() + within
    job: dict[str, Any] = {}
    while time.monotonic() < end:
        with suppress(AssertionError), outside(installation, ["PODIUM_ADDRESS"]) as client:
            job = json.loads(podium(client, "job", "get", job_id, "-o", "json"))
        if job and condition(job):
            told = f"{job['state']}: {job.get('failure_reason')}: {job.get('failure_message')}"
            assert job["state"] not in ENDED - {"succeeded"}, told
            return job
        assert job.get("state") not in ENDED, f"{job}\n{installation.cluster.state()}"
        time.sleep(5)
    raise AssertionError(f"{job}\n{installation.cluster.state()}")


def podium(client: dict[str, str], *arguments: str, text_in: str | None = None) -> str:
    """What the CLI prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "podium.cli", *arguments],
        env=client,
        input=text_in,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


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
        follow(installation, "first")
        assert empty_panels(installation.cluster.namespace, "first", prometheus, began) == []
    versions = json.loads(podium(client, "checkpoint", "list", "first", "-o", "json"))
    # Retention decides about version 0.
    assert {1, 2, 3} <= {int(v["manifest"]["version"]) for v in versions}


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
        "--wait",
        "--timeout",
        "15m",
    )
    assert installation.token == token
    assert cluster.secret(f"{RELEASE}-database", "password") == password
    budgets = cluster.names("poddisruptionbudgets")
    assert budgets == [f"poddisruptionbudget.policy/{RELEASE}-judge"]
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
    version = json.loads(cluster.kubectl("version", "--output=json"))["serverVersion"]
    if int(version["minor"].rstrip("+")) < 24:
        # Its reflect2 reads maps as Go before 1.18 laid them out.
        pytest.skip("an API server before 1.24, built with a later Go, dies of custom resources")
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


def test_uninstall_in_the_middle_of_a_job_leaves_what_the_values_keep(
    installation: Installation,
) -> None:
    cluster = installation.cluster
    with outside(installation) as client:
        submit(client, "left", 50)
    cluster.trainer_of("left")
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "5m")
    # Helm waits for what it made, not for the pods of that.
    cluster.gone("jobs,pods", "podium.dev/job")
    cluster.gone("pods", f"app.kubernetes.io/instance={RELEASE}")
    kinds = (
        "deployments,statefulsets,pods,services,configmaps,persistentvolumeclaims,roles,rolebindings,"
        "networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,jobs,leases"
    )
    ours = [name for name in cluster.names(kinds) if "kube-root-ca.crt" not in name]
    assert ours == [f"persistentvolumeclaim/{RELEASE}-postgresql"]
    secrets = [s for s in cluster.names("secrets") if RELEASE in s]
    assert secrets == [f"secret/{RELEASE}-database"]
