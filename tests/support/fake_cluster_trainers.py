"""A controller's trainers in a cluster in memory, and what the cluster does there by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
from podium.kit.kubernetes.api import JOBS, PODS
from podium.kit.kubernetes.object_template import Manifest
from podium_controller.cluster.jobset import JOBSETS
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.cluster.trainers import KubernetesTrainers
from podium_controller.cluster.workloads import Workloads
from podium_controller.domain.ports import JobRecord
from support.cluster import Waits, template
from support.fake_api import FakeApi

_uids = itertools.count(1)


@asynccontextmanager
async def controller(
    api: FakeApi,
    owner: str = "",
    job_sets: Any = "auto",
    by_pool: Mapping[str, Manifest] | None = None,
) -> AsyncIterator[KubernetesTrainers]:
    """A controller's trainers, as it has them until it stops."""
    made = TrainerTemplate(template(), "nvidia.com/gpu", by_pool)
    workloads = Workloads(api, made, owner, job_sets)  # type: ignore[arg-type]

    def dial(address: str) -> Any:
        return grpc.aio.insecure_channel(address), None

    trainers = KubernetesTrainers(workloads, dial)
    async with workloads.watching():
        try:
            yield trainers
        finally:
            await trainers.hang_up()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def made_of(api: FakeApi) -> Manifest:
    """What the controller made: the JobSet, or the Job by itself."""
    (found,) = api.of(JOBSETS) or api.of(JOBS)
    return found


def pods(api: FakeApi, **status: Any) -> list[Manifest]:
    """Starts the pods of the one Job, as the Job controller and a kubelet do."""
    (job,) = api.of(JOBS)
    started = []
    for index in range(job["spec"]["completions"]):
        host = f"{job['metadata']['name']}-{index}"
        spec = job["spec"]["template"]["spec"]
        pod = {
            "metadata": {
                "name": f"{host}-{next(_uids):05}",
                "labels": job["spec"]["template"]["metadata"]["labels"],
                "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                "ownerReferences": [{"uid": job["metadata"]["uid"], "controller": True}],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {**spec, "hostname": host},
            "status": {
                "phase": "Running",
                "podIP": "127.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
                **status,
            },
        }
        api.put(PODS, pod)
        started.append(pod)
    return started


def admit(api: FakeApi) -> None:
    """What Kueue does with what waits in its queue, when there is room."""
    waiting = made_of(api)
    waiting["spec"]["suspend"] = False
    api.put(JOBSETS if waiting["kind"] == "JobSet" else JOBS, waiting)


def starting(
    trainers: KubernetesTrainers, job: JobRecord, waits: Waits | None = None
) -> asyncio.Task[bool]:
    return asyncio.create_task(trainers.of(job).ready(waits or Waits()))
