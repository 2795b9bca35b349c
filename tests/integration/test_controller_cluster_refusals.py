"""What a real cluster refuses or lacks: the job waits or fails with the cluster's words."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from podium.kit.kubernetes.api import (
    Resource,
)
from podium.kit.kubernetes.object_template import Manifest
from podium.types.v1 import spec_pb2
from podium_controller.cluster.environment_template import EnvironmentTemplate
from podium_controller.cluster.environments import KubernetesEnvironments
from podium_controller.cluster.owner import Owner
from podium_controller.domain.errors import JobFailedError
from support.cluster import (
    Namespace,
    Waits,
    environment_template,
    record,
    shell,
    template,
)
from support.cluster_fixtures import SECONDS, namespace, nothing_left, pods_of, until

__all__ = ["namespace"]

pytestmark = pytest.mark.e2e


NEVER = {"exec": {"command": ["false"]}}


QUOTAS = Resource("v1", "resourcequotas")


LIMITS = Resource("v1", "limitranges")


async def test_a_job_too_large_waits_with_the_schedulers_reason(namespace: Namespace) -> None:
    job, waits = record(gpus_per_node=16, nodes=2), Waits()
    async with namespace.trainers() as (trainers, workloads):
        trainer = trainers.of(job)
        waiting = asyncio.create_task(trainer.ready(waits))
        try:
            await until(lambda: "TRAINER_UNSCHEDULABLE" in waits.reasons)
        finally:
            waiting.cancel()
        assert "Insufficient nvidia.com/gpu" in waits.message("TRAINER_UNSCHEDULABLE")
        assert len(waits.reasons) == len(set(waits.reasons))
        assert len(await pods_of(namespace, job.id)) == 2
        await trainer.close(job.id, 10)
        assert not workloads.placement(job.id).uid
    await nothing_left(namespace, job.id)


async def test_bad_settings_fail_the_job_at_once_in_the_trainers_words(
    namespace: Namespace,
) -> None:
    job = record()
    wrong = "PODIUM_TRAINER_PORT: got 'x': should be a valid integer"
    made = template(command=shell(f'echo "{wrong}" >&2; exit 2'), readinessProbe=NEVER)
    async with namespace.trainers(made) as (trainers, _), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(job).ready(Waits())
    assert raised.value.reason == "TRAINER_MISCONFIGURED"
    assert wrong in raised.value.message


async def test_a_trainer_that_crashes_again_and_again_fails_the_job(namespace: Namespace) -> None:
    job, waits = record(), Waits()
    made = template(command=shell("echo no CUDA device >&2; exit 1"), readinessProbe=NEVER)
    async with namespace.trainers(made) as (trainers, _), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(job).ready(waits)
    assert raised.value.reason == "TRAINER_CRASHED"
    assert "no CUDA device" in raised.value.message
    assert "2 times in a row" in raised.value.message
    assert "no CUDA device" in waits.message("TRAINER_CRASHED")


async def test_out_of_memory_is_told_as_such(namespace: Namespace) -> None:
    job, waits = record(), Waits()
    made = template(command=shell("tail /dev/zero"), readinessProbe=NEVER)
    async with namespace.trainers(made) as (trainers, _), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(job).ready(waits)
    assert raised.value.reason == "TRAINER_OUT_OF_MEMORY"
    assert "TRAINER_OUT_OF_MEMORY" in waits.reasons
    assert "its container trainer outgrew its memory limit" in raised.value.message


@pytest.mark.parametrize(
    ("container", "reason", "words"),
    [
        ({"image": "localhost/nowhere:1"}, "TRAINER_IMAGE_PULL", "localhost/nowhere:1"),
        (
            {
                "env": [
                    {
                        "name": "TOKEN",
                        "valueFrom": {"secretKeyRef": {"name": "podium-auth", "key": "token"}},
                    }
                ]
            },
            "TRAINER_CONTAINER_CONFIG",
            'secret "podium-auth" not found',
        ),
    ],
)
async def test_what_a_container_lacks_is_waited_for_and_told(
    namespace: Namespace, container: Manifest, reason: str, words: str
) -> None:
    job, waits = record(), Waits()
    async with namespace.trainers(template(**container)) as (trainers, _):
        trainer = trainers.of(job)
        waiting = asyncio.create_task(trainer.ready(waits))
        try:
            await until(lambda: reason in waits.reasons or waiting.done())
            assert not waiting.done()
            assert words in waits.message(reason)
        finally:
            waiting.cancel()
        await trainer.close(job.id, 10)
    await nothing_left(namespace, job.id)


async def test_an_invalid_image_name_fails_the_job(namespace: Namespace) -> None:
    made = template(image="Not A Name")
    async with namespace.trainers(made) as (trainers, _), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(record()).ready(Waits())
    assert raised.value.reason == "TRAINER_IMAGE_INVALID"


async def test_a_job_that_the_api_refuses_fails_with_its_words(namespace: Namespace) -> None:
    made = template(imagePullPolicy="Sometimes")
    async with namespace.trainers(made) as (trainers, _), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(record()).ready(Waits())
    assert raised.value.reason == "TRAINER_INVALID"
    assert "imagePullPolicy" in raised.value.message


async def test_a_full_quota_is_waited_for(namespace: Namespace) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full"},
        "spec": {"hard": {"pods": "0"}},
    }
    quota = await namespace.api.create(QUOTAS, quota)
    job, waits = record(), Waits()
    async with namespace.trainers() as (trainers, _), asyncio.timeout(SECONDS):
        waiting = asyncio.create_task(trainers.of(job).ready(waits))
        await until(lambda: "TRAINER_OVER_QUOTA" in waits.reasons or waiting.done())
        assert "exceeded quota: full" in waits.message("TRAINER_OVER_QUOTA")
        await namespace.api.delete(QUOTAS, "full", quota["metadata"]["uid"])
        assert await waiting is False


async def test_pods_that_admission_forbids_fail_the_job(namespace: Namespace) -> None:
    await namespace.api.create(
        LIMITS,
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "small"},
            "spec": {"limits": [{"type": "Container", "max": {"memory": "8Mi"}}]},
        },
    )
    async with namespace.trainers() as (trainers, _), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(record()).ready(Waits())
    assert raised.value.reason == "TRAINER_FORBIDDEN"
    assert "maximum memory usage per Container is 8Mi" in raised.value.message


async def test_an_image_that_cannot_be_pulled_is_told(namespace: Namespace) -> None:
    template = EnvironmentTemplate(environment_template())
    environments = KubernetesEnvironments(namespace.api, template, Owner(namespace.api, ""))
    wanted = spec_pb2.EnvironmentSpec(name="mine", image="localhost/nowhere:1")
    job = replace(record("a"), spec=spec_pb2.JobSpec(environment=wanted))
    waits = Waits()
    async with environments.watching(), asyncio.timeout(SECONDS):
        placing = asyncio.create_task(environments.place(job, waits))
        while "localhost/nowhere" not in waits.message("ENVIRONMENT_STARTING"):
            await asyncio.sleep(0.1)
        placing.cancel()
        await environments.close("a", 30)
