"""Environments that are images: placed for a job, told of, and removed with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError, PermissionDeniedError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.kubernetes.api import DEPLOYMENTS, PODS, SERVICES
from podium.types.v1 import spec_pb2
from podium_controller.cluster.environment_template import EnvironmentTemplate
from podium_controller.cluster.environments import KubernetesEnvironments
from podium_controller.cluster.owner import Owner
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import Wait
from podium_controller.grpc_peers.peers import NoEnvironments
from support.fake_api import FakeApi

IMAGE = "registry.example.com/search:3"
NAME = "podium-environment-a"


def template() -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": "podium", "app.kubernetes.io/component": "environment"}
    container = {"name": "environment", "ports": [{"name": "grpc", "containerPort": 50060}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "podium-environment", "labels": labels},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def job(job_id: str = "a", **environment: Any) -> JobRecord:
    wanted = spec_pb2.EnvironmentSpec(name="search", image=IMAGE, **environment)
    spec = spec_pb2.JobSpec(environment=wanted)
    return JobRecord(job_id, spec, pb.JOB_STATE_RUNNING, 0, "")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
async def environments(api: FakeApi) -> AsyncIterator[KubernetesEnvironments]:
    made = KubernetesEnvironments(
        api,  # type: ignore[arg-type]
        EnvironmentTemplate(template()),
        Owner(api, ""),  # type: ignore[arg-type]
    )
    async with made.watching():
        yield made


@pytest.fixture
def waits() -> list[Wait]:
    return []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def available(api: FakeApi, count: int = 1) -> None:
    found = api.objects["deployments", NAME]
    api.put(DEPLOYMENTS, {**found, "status": {"availableReplicas": count}})


def placing(
    environments: KubernetesEnvironments, waits: list[Wait], record: JobRecord
) -> asyncio.Task[str]:
    async def on_wait(wait: Wait) -> None:
        waits.append(wait)

    return asyncio.create_task(environments.place(record, on_wait))


async def test_a_deployment_and_a_service_of_the_image(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    task = placing(environments, waits, job(replicas=3))
    await until(lambda: len(api.of(SERVICES)) == 1)
    (made,) = api.of(DEPLOYMENTS)
    assert made["spec"]["replicas"] == 3
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    await asyncio.sleep(0.05)
    assert not task.done()
    available(api)
    assert await task == f"{NAME}.here.svc:50060"
    assert [wait.reason for wait in waits] == ["ENVIRONMENT_STARTING"]


async def test_what_keeps_a_pod_is_told_in_the_clusters_words(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    task = placing(environments, waits, job())
    await until(lambda: len(api.of(DEPLOYMENTS)) == 1)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f"no such image {IMAGE}"}}
    labels = api.of(DEPLOYMENTS)[0]["spec"]["template"]["metadata"]["labels"]
    status = {"containerStatuses": [{"name": "environment", "state": waiting}]}
    api.put(PODS, {"metadata": {"name": "p", "labels": labels}, "status": status})
    # The same reason in other words is told now and then.
    environments_task = placing(environments, later := [], job())
    await until(lambda: any(IMAGE in wait.message for wait in later))
    available(api)
    await asyncio.gather(task, environments_task)


async def test_a_pod_that_the_cluster_does_not_take_is_told_in_its_words(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    first = placing(environments, [], job())
    await until(lambda: len(api.of(DEPLOYMENTS)) == 1)
    said = 'pod rejected: RuntimeClass "gvisor" not found'
    refused = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": said,
    }
    api.put(DEPLOYMENTS, {**api.objects["deployments", NAME], "status": {"conditions": [refused]}})
    await until(lambda: environments._seen["a"].refused == said)
    second = placing(environments, waits, job())
    await until(lambda: bool(waits))
    assert waits == [Wait("ENVIRONMENT_STARTING", said)]
    available(api)
    await asyncio.gather(first, second)


async def test_a_controller_that_was_started_again_finds_what_is_there(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    first = placing(environments, waits, job())
    await until(lambda: len(api.of(SERVICES)) == 1)
    available(api)
    address = await first
    uid = api.of(DEPLOYMENTS)[0]["metadata"]["uid"]
    again = KubernetesEnvironments(
        api,  # type: ignore[arg-type]
        EnvironmentTemplate(template()),
        Owner(api, ""),  # type: ignore[arg-type]
    )
    async with again.watching():
        assert await placing(again, waits, job()) == address
    assert api.of(DEPLOYMENTS)[0]["metadata"]["uid"] == uid


async def test_it_goes_with_its_job_and_a_resumed_job_has_another(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    first = placing(environments, waits, job())
    await until(lambda: len(api.of(SERVICES)) == 1)
    available(api)
    await first
    uid = api.of(DEPLOYMENTS)[0]["metadata"]["uid"]
    await environments.close("a", 5)
    assert api.objects == {}
    await environments.close("a", 5)
    second = placing(environments, waits, job())
    await until(lambda: len(api.of(SERVICES)) == 1)
    assert not second.done()
    available(api)
    await second
    assert api.of(DEPLOYMENTS)[0]["metadata"]["uid"] != uid


async def test_what_no_job_needs_is_removed(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    for name in ("a", "b"):
        placed = placing(environments, waits, job(name))
        await until(lambda name=name: ("services", f"podium-environment-{name}") in api.objects)
        placed.cancel()
    await environments.retain({"b"})
    await until(lambda: len(api.of(DEPLOYMENTS)) == 1)
    assert api.of(DEPLOYMENTS)[0]["metadata"]["name"] == "podium-environment-b"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (InvalidArgumentError("spec.image: bad"), "ENVIRONMENT_INVALID"),
        (PermissionDeniedError("a webhook says no"), "ENVIRONMENT_FORBIDDEN"),
    ],
)
async def test_what_the_cluster_refuses_fails_the_job(
    api: FakeApi,
    environments: KubernetesEnvironments,
    waits: list[Wait],
    fault: Exception,
    reason: str,
) -> None:
    api.fault = fault  # type: ignore[assignment]
    with pytest.raises(JobFailedError) as caught:
        await placing(environments, waits, job())
    assert caught.value.reason == reason


async def test_anothers_object_of_its_name_fails_the_job(
    api: FakeApi, environments: KubernetesEnvironments, waits: list[Wait]
) -> None:
    labels = {"podium.dev/job": "other"}
    api.put(DEPLOYMENTS, {"metadata": {"name": NAME, "labels": labels}})
    with pytest.raises(JobFailedError) as caught:
        await placing(environments, waits, job())
    assert caught.value.reason == "ENVIRONMENT_NAME_TAKEN"


async def test_a_laptop_places_none() -> None:
    (found,) = await NoEnvironments().violations(job().spec.environment)
    assert found.field == "job.spec.environment.image"
    assert IMAGE in found.description


def test_a_template_without_its_container_is_refused() -> None:
    wrong = template()
    wrong["spec"]["template"]["spec"]["containers"][0]["name"] = "env"
    del wrong["metadata"]["labels"]["app.kubernetes.io/instance"]
    with pytest.raises(InvalidArgumentError) as caught:
        EnvironmentTemplate(wrong)
    assert [v.field for v in caught.value.violations] == [
        "environment_template.metadata.labels",
        "environment_template.spec.template.spec.containers",
    ]
