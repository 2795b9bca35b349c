"""A cluster, the chart, and a job from outside; the tests are in the order of a first day."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from podium.local.launcher import logs
from support.cluster_jobs import (
    ENDLESS,
    JOB,
    completed,
    follow,
    goes_on,
    outside,
    podium,
    reached,
    submit,
)
from support.cluster_user import typed
from support.custom_resources import MONITORING
from support.kubernetes_cluster import RELEASE, Installation
from support.prometheus_server import Prometheus, scraping
from support.shown_panels import empty, unwell, write_rules

pytestmark = pytest.mark.timeout(2400)

EVALUATED = (
    "evaluation.split=heldout",
    "evaluation.scenarios=1",
    "evaluation.every_steps=3",
)
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


@pytest.mark.parametrize("component", [name for name in METRICS if name != "trainer"])
def test_a_probe_compiles_nothing(installation: Installation, component: str) -> None:
    """The root file system is read-only: what has no bytecode is compiled at each start."""
    cluster = installation.cluster
    pod = cluster.pod_of(component).removeprefix("pod/")
    probe = ["python", "-v", "-m", "podium.probe", "127.0.0.1:1"]
    command = ["kubectl", "--namespace", cluster.namespace, "exec", pod, "--", *probe]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert re.findall(r"code object from '.*\.pyc'", told)
    assert re.findall(r"code object from (/.*)", told) == []


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
    installation: Installation,
    client: dict[str, str],
    logged_in: dict[str, str],
    tmp_path: Path,
) -> None:
    began = time.time()
    # Its evaluations have panels too.
    submit(client, "first", 3, *EVALUATED)
    # kubectl gives a forward up whose port refuses.
    ready = ("wait", "--for=condition=Ready", installation.cluster.trainer_of("first"))
    installation.cluster.kubectl(*ready, "--timeout=600s", timeout=620)
    with scraped(installation, "first", tmp_path) as prometheus:
        trainer = installation.cluster.trainer_of("first")
        assert fetched_by(installation, trainer) == ["smollm2-135m-instruct"]
        with followed(logged_in, "first", tmp_path / "logs.txt") as shown:
            reached(installation, "first", 1)
            written = installation.cluster.kubectl("logs", trainer).splitlines()
            told = typed(logged_in, "job", "logs", "first", "--service", "trainer")
            assert told.returncode == 0, told.stderr
            assert_told(told.stdout, trainer, written)
            follow(installation, "first")
        assert_told(shown.read_text(), trainer, written)
        # Of pods that all jobs share, the lines that name the job.
        shared = [line for line in shown.read_text().splitlines() if line.startswith("controller ")]
        assert shared
        assert all("first" in line for line in shared)
        # What the last step has left is scraped within two seconds, and rates take two scrapes.
        until = time.monotonic() + 60
        namespace = installation.cluster.namespace
        shown = variables(namespace, "first")
        while missing := [
            *empty(prometheus, shown, began, cluster=True),
            *unwell(prometheus),
        ]:
            assert time.monotonic() < until, missing
            time.sleep(2)
    versions = json.loads(podium(client, "checkpoint", "list", "first", "-o", "json"))
    # Retention decides about version 0.
    assert {1, 2, 3} <= {int(v["manifest"].get("version", 0)) for v in versions}


@contextmanager
def followed(environment: dict[str, str], job_id: str, file: Path) -> Iterator[Path]:
    """What `podium job logs --follow` prints, which ends by itself with the job."""
    with file.open("w") as out:
        command = [sys.executable, "-m", "podium.cli", "job", "logs", job_id, "--follow"]
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield file
            assert process.wait(120) == 0, file.read_text()
        finally:
            process.kill()
            process.wait()


def assert_told(text: str, pod: str, written: list[str]) -> None:
    """Each line that a pod wrote is there once, after its service and pod, in its order."""
    start = f"trainer     {pod.removeprefix('pod/')}  "
    told = [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]
    assert written
    assert told[: len(written)] == [logs.readable(line) for line in written]


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
        rules = write_rules(folder, RELEASE, cluster.namespace)
        yield stack.enter_context(scraping(folder, targets, rules))


def variables(namespace: str, job_id: str) -> dict[str, str]:
    """As Grafana fills them in."""
    return {
        "$namespace": namespace,
        "$release": RELEASE,
        "$job": job_id,
        "$pool": "inference-default",
        "$__rate_interval": "30s",
        "$__range": "1h",
    }


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


@pytest.fixture(scope="module")
def lasting(installation: Installation) -> Iterator[str]:
    """A TrainingJob in the middle of its job, whose id is its name."""
    cluster = installation.cluster
    cluster.apply(
        {
            "apiVersion": "podium.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "lasting", "namespace": cluster.namespace},
            "spec": {"job": yaml.safe_load(JOB.format(steps=ENDLESS))},
        }
    )
    yield "lasting"
    # Where it is there still, a test has failed.
    delete = ("delete", "--ignore-not-found", "--wait=false", "trainingjob", "lasting")
    cluster.kubectl(*delete)


def test_an_upgrade_in_the_middle_of_a_job_loses_no_step_and_keeps_the_secrets(
    installation: Installation, lasting: str, gpus: bool
) -> None:
    cluster, token = installation.cluster, installation.token
    # What computes is a CPU all the same, which takes merged weights faster.
    pools = "poolDefaults.gpus=1,poolDefaults.weightMode=merged"
    each_a_gpu = f"{pools},trainer.gpus=1,trainer.settings.DEVICE=cpu"
    reached(installation, lasting, 1)
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
        *(["--set", each_a_gpu] if gpus else []),
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
        assert cluster.stored(each)["spec"] == each["spec"]
    goes_on(installation, lasting)


PODS = ("controller", "registry", "rollout", "judge", "inference-default", "postgresql", "trainer")


def test_a_job_outlives_each_of_the_pods_in_turn(installation: Installation, lasting: str) -> None:
    cluster = installation.cluster
    for component in PODS:
        done = completed(installation, lasting)
        pods = (
            [cluster.trainer_of(lasting)] if component == "trainer" else cluster.pods_of(component)
        )
        cluster.kubectl("delete", "--wait=false", *pods)
        reached(installation, lasting, done + 1)
    goes_on(installation, lasting)


def test_a_resource_shows_its_job_and_ends_it(installation: Installation, lasting: str) -> None:
    cluster = installation.cluster
    least = completed(installation, lasting)
    end = time.monotonic() + 120
    while int((row := cluster.kubectl("get", "trainingjobs", "--no-headers").split())[2]) < least:
        assert time.monotonic() < end, row
        time.sleep(1)
    assert row[:2] == [lasting, "Running"]
    assert row[3] == str(ENDLESS)
    # It is gone when the job has ended.
    cluster.kubectl("delete", "trainingjob", lasting, "--timeout=120s", timeout=150)
    with outside(installation, ["PODIUM_ADDRESS"]) as client:
        found = json.loads(podium(client, "job", "get", lasting, "-o", "json"))
    assert found["state"] == "cancelled"
    cluster.gone("jobs,pods", f"podium.dev/job={lasting}")
