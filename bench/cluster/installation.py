"""A controller against the cluster of $KUBECONFIG, with what it needs, in its own namespace."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from podium.kit.rpc import connect
from prometheus_client.parser import text_string_to_metric_families

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Installation:
    """Where the controller is, and where its trainers go."""

    namespace: str
    address: str
    metrics_url: str

    async def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """(name, labels, value) of every series of the controller."""
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            text = (await client.get(self.metrics_url)).text
        return [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    async def calls(self) -> dict[str, int]:
        """Calls of the API server so far, by `METHOD resource`."""
        return {
            f"{labels['method']} {labels['resource']}": int(value)
            for name, labels, value in await self.samples()
            if name == "podium_controller_cluster_calls_total"
        }

    async def memory(self) -> float:
        """Resident bytes of the controller."""
        return next(v for n, _, v in await self.samples() if n == "process_resident_memory_bytes")


@asynccontextmanager
async def installed(
    folder: Path, jobs: int, selector: dict[str, str]
) -> AsyncIterator[Installation]:
    """A registry, a stub of a pool and the controller as processes; trainers only on chosen nodes.

    Args:
        jobs: how many may run at once.
        selector: labels of the nodes.
    """
    namespace = f"podium-bench-{uuid.uuid4().hex[:6]}"
    template = folder / "job.yaml"
    template.write_text(yaml.safe_dump(trainer_job(selector)))
    ports = {name: _free_port() for name in ("registry", "pool", "controller", "metrics")}
    with ExitStack() as stack:
        kubectl("create", "namespace", namespace)
        stack.callback(kubectl, "delete", "namespace", namespace, "--wait=false")
        pool = [sys.executable, "-m", "bench.cluster.stub_pool", str(ports["pool"])]
        stack.enter_context(_process(pool, {}, folder / "pool.log"))
        stack.enter_context(
            _service(
                "registry", {"PORT": ports["registry"], "DATA_DIR": folder / "registry"}, folder
            )
        )
        controller = {
            "PORT": ports["controller"],
            "METRICS_PORT": ports["metrics"],
            "DATA_DIR": folder / "controller",
            "REGISTRY_ADDRESS": f"127.0.0.1:{ports['registry']}",
            "INFERENCE_ADDRESS": f"127.0.0.1:{ports['pool']}",
            "TRAINER_TEMPLATE": template,
            "NAMESPACE": namespace,
            "MAX_ACTIVE_JOBS": jobs,
            "MAX_JOBS_PER_POOL": jobs,
        }
        stack.enter_context(_service("controller", controller, folder))
        address = f"127.0.0.1:{ports['controller']}"
        async with connect(address) as channel, asyncio.timeout(60):
            await channel.channel_ready()
        yield Installation(namespace, address, f"http://127.0.0.1:{ports['metrics']}/metrics")


def trainer_job(selector: dict[str, str]) -> Manifest:
    """A template whose pods need nothing; a simulated node runs them without an image."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "bench-trainer",
            "labels": {"app.kubernetes.io/instance": "bench", "app.kubernetes.io/name": "podium"},
        },
        "spec": {
            "template": {
                "spec": {
                    "nodeSelector": selector,
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "trainer",
                            "image": "podium/trainer:bench",
                            "ports": [{"name": "grpc", "containerPort": 50056}],
                            "resources": {
                                "requests": {"cpu": "10m", "memory": "16Mi"},
                                "limits": {"memory": "16Mi"},
                            },
                        }
                    ],
                }
            }
        },
    }


def kubectl(*arguments: str) -> str:
    """What kubectl prints.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    return subprocess.run(
        ["kubectl", *arguments], check=True, capture_output=True, text=True
    ).stdout


def running(namespace: str) -> int:
    """Pods of a namespace that run."""
    found = json.loads(kubectl("--namespace", namespace, "get", "pods", "--output", "json"))
    return sum(pod["status"].get("phase") == "Running" for pod in found["items"])


def _service(name: str, settings: dict[str, object], folder: Path) -> Any:
    prefix = f"PODIUM_{name.upper()}_"
    environment = {f"{prefix}{key}": str(value) for key, value in settings.items()}
    environment.setdefault(f"{prefix}HEALTH_PORT", "0")
    environment.setdefault(f"{prefix}METRICS_PORT", "0")
    command = [sys.executable, "-m", f"podium_{name}"]
    return _process(command, environment, folder / f"{name}.log")


@contextmanager
def _process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
