"""A namespace of a real cluster, and what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from podium.kit.kubernetes.api import (
    JOBS,
    PODS,
    SERVICES,
    Resource,
    Selection,
)
from podium.kit.kubernetes.object_template import JOB_LABEL, Manifest
from podium_controller.cluster.view import pod_of
from support.cluster import (
    Namespace,
    kubeconfig,
    namespace_of,
)

SECONDS = 100


@pytest.fixture
async def namespace() -> AsyncIterator[Namespace]:
    async with namespace_of(kubeconfig()) as made:
        # Pods are refused until it is there.
        await until(lambda: exists(made, Resource("v1", "serviceaccounts"), "default"))
        yield made


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            met = condition()
            if met if isinstance(met, bool) else await met:
                return
            await asyncio.sleep(0.2)


async def exists(namespace: Namespace, resource: Resource, name: str) -> bool:
    found, _ = await namespace.api.list_all(Selection(resource))
    return name in {each["metadata"]["name"] for each in found}


async def pods_of(namespace: Namespace, job_id: str) -> list[Manifest]:
    found, _ = await namespace.api.list_all(Selection(PODS, f"{JOB_LABEL}={job_id}"))
    return sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])


async def nothing_left(namespace: Namespace, job_id: str) -> None:
    """Returns when the job has no Job, pods or Service any more."""

    async def is_gone() -> bool:
        ours = f"{JOB_LABEL}={job_id}"
        found = [await namespace.api.list_all(Selection(r, ours)) for r in (JOBS, PODS, SERVICES)]
        return not any(items for items, _ in found)

    await until(is_gone)


async def delete_pod(namespace: Namespace, pod: Manifest) -> None:
    await namespace.api.delete(PODS, pod["metadata"]["name"], pod["metadata"]["uid"])


async def is_replaced(namespace: Namespace, job_id: str, pod: Manifest) -> bool:
    found = await pods_of(namespace, job_id)
    return any(
        each["metadata"]["uid"] != pod["metadata"]["uid"] and pod_of(each).ready for each in found
    )
