"""A namespace of its own on the cluster of $KUBECONFIG, and trainers there that train nothing.

The trainer of these tests is a double: a shell in an image that the cluster
has. What places, starts, kills and removes it is the real thing.
"""

from __future__ import annotations

import copy
import os
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from podium.core.errors import PodiumError
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.kit.kubernetes.api import ClusterApi, Manifest, connected
from podium.kit.rpc import connect
from podium.types.v1 import spec_pb2
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.cluster.trainers import KubernetesTrainers
from podium_controller.cluster.workloads import Workloads
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import Wait
from podium_controller.grpc_peers.trainers import GrpcTrainer
from podium_controller.settings import Settings

IMAGE = os.environ.get("PODIUM_TEST_IMAGE", "localhost/busybox:1")
"""Any image with a shell that every node has."""

TEMPLATE = f"""
apiVersion: batch/v1
kind: Job
metadata:
  name: podium-trainer
  labels:
    app.kubernetes.io/name: podium
    app.kubernetes.io/instance: test
    app.kubernetes.io/component: trainer
spec:
  backoffLimit: 1
  template:
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: trainer
          image: {IMAGE}
          imagePullPolicy: Never
          command: [sh, -c, "trap 'exit 0' TERM; sleep 3600 & wait"]
          ports: [{{name: grpc, containerPort: 50056}}]
          resources:
            requests: {{cpu: 10m, memory: 16Mi}}
            limits: {{memory: 32Mi}}
"""


def template(**trainer: Any) -> Manifest:
    """A template; `trainer` are changes of its container."""
    job: Manifest = copy.deepcopy(yaml.safe_load(TEMPLATE))
    job["spec"]["template"]["spec"]["containers"][0].update(trainer)
    return job


def environment_template() -> Manifest:
    """What an environment is made from that serves nothing and never ends."""
    container = {
        "name": "environment",
        "imagePullPolicy": "IfNotPresent",
        "command": shell("trap 'exit 0' TERM; sleep 3600 & wait"),
        "ports": [{"name": "grpc", "containerPort": 50060}],
        "resources": {"limits": {"memory": "32Mi"}},
    }
    labels = {
        "app.kubernetes.io/name": "podium",
        "app.kubernetes.io/instance": "test",
        "app.kubernetes.io/component": "environment",
    }
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "podium-environment", "labels": labels},
        "spec": {"template": {"spec": pod}},
    }


def shell(script: str) -> list[str]:
    """A container's command."""
    return ["sh", "-c", script]


def record(job_id: str = "", **trainer: Any) -> JobRecord:
    """A running job with wishes for its trainer."""
    return JobRecord(
        id=job_id or f"job-{uuid.uuid4().hex[:6]}",
        spec=spec_pb2.JobSpec(trainer=spec_pb2.TrainerSpec(**trainer)),
        state=jobs_pb.JOB_STATE_RUNNING,
        completed_steps=0,
        trace_parent="",
    )


class Waits:
    """What a trainer was said to wait for."""

    def __init__(self) -> None:
        self.all: list[Wait] = []

    async def __call__(self, wait: Wait) -> None:
        self.all.append(wait)

    @property
    def reasons(self) -> list[str]:
        return [wait.reason for wait in self.all]

    def message(self, reason: str) -> str:
        """What was last said of a reason."""
        return next((w.message for w in reversed(self.all) if w.reason == reason), "")


class Namespace:
    """One namespace, which is deleted at the end."""

    def __init__(self, api: ClusterApi, kubeconfig: Path) -> None:
        self.api = api
        self.kubeconfig = kubeconfig

    async def raw(self, method: str, path: str, body: Manifest | None = None) -> Manifest:
        """A call that a controller has no need of."""
        return await self.api._json(method, path, body=body)

    @asynccontextmanager
    async def trainers(
        self, job: Manifest | None = None, *, api: ClusterApi | None = None, owner: str = ""
    ) -> AsyncIterator[tuple[KubernetesTrainers, Workloads]]:
        """A controller's trainers, as it has them until it stops."""
        made = TrainerTemplate(job or template(), "nvidia.com/gpu")
        workloads = Workloads(api or self.api, made, owner)

        def dial(address: str) -> Any:
            channel = connect(address)
            return channel, GrpcTrainer(channel, Settings())

        trainers = KubernetesTrainers(workloads, dial)
        async with workloads.watching():
            try:
                yield trainers, workloads
            finally:
                await trainers.hang_up()

    @asynccontextmanager
    async def as_service_account(
        self, name: str, rules: list[Manifest]
    ) -> AsyncIterator[ClusterApi]:
        """The cluster as a service account with a Role of these rules sees it."""
        rbac, role = "rbac.authorization.k8s.io", {"metadata": {"name": name}}
        here = self.api.namespace
        core, path = f"/api/v1/namespaces/{here}", f"/apis/{rbac}/v1/namespaces/{here}"
        await self.raw("POST", f"{core}/serviceaccounts", role)
        await self.raw("POST", f"{path}/roles", {**role, "rules": rules})
        binding = {
            **role,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": here}],
        }
        await self.raw("POST", f"{path}/rolebindings", binding)
        made = await self.raw(
            "POST",
            f"{core}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        )
        file = yaml.safe_load(self.kubeconfig.read_text())
        user = next(each for each in file["contexts"] if each["name"] == file["current-context"])
        file["users"] = [
            {"name": user["context"]["user"], "user": {"token": made["status"]["token"]}}
        ]
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as written:
            yaml.safe_dump(file, written)
            written.flush()
            async with connected(here, written.name) as api:
                yield api


def kubeconfig() -> Path:
    """The cluster of the tests, or a skip that says what is missing."""
    named = os.environ.get("KUBECONFIG", "")
    if not named:
        pytest.skip("KUBECONFIG names no cluster; shared/cluster/cluster up makes one")
    return Path(named)


@asynccontextmanager
async def namespace_of(path: Path) -> AsyncIterator[Namespace]:
    """A new namespace; a skip when the cluster does not answer."""
    name = f"podium-test-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connected(name, str(path)))
        try:
            await api.serves("batch")
        except PodiumError as error:
            pytest.skip(f"the cluster of KUBECONFIG does not answer: {error.message}")
        namespace = Namespace(api, path)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await namespace.raw("POST", "/api/v1/namespaces", body)
        try:
            yield namespace
        finally:
            await namespace.raw("DELETE", f"/api/v1/namespaces/{name}")
