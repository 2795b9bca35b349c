"""Trainers on a real cluster: its API server, scheduler, Job controller and kubelet.

eval "$(shared/cluster/cluster up | grep ^export)"
pytest tests/integration/test_controller_cluster*.py
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import yaml
from podium.core.errors import AlreadyExistsError, PermissionDeniedError
from podium.kit.kubernetes.api import (
    DEPLOYMENTS,
    JOBS,
    PODS,
    SERVICES,
    Resource,
    Selection,
    connected,
)
from podium.kit.kubernetes.object_template import JOB_LABEL
from podium.types.v1 import spec_pb2
from podium_controller.cluster.environment_template import EnvironmentTemplate
from podium_controller.cluster.environments import KubernetesEnvironments
from podium_controller.cluster.owner import Owner
from podium_controller.cluster.view import pod_of
from support.cluster import (
    IMAGE,
    Namespace,
    Waits,
    environment_template,
    record,
    shell,
)
from support.cluster_fixtures import (
    SECONDS,
    delete_pod,
    exists,
    is_replaced,
    namespace,
    nothing_left,
    pods_of,
    until,
)
from support.cutting_proxy import CuttingProxy

__all__ = ["namespace"]

pytestmark = pytest.mark.e2e

ROLE = [
    {
        "apiGroups": ["batch"],
        "resources": ["jobs"],
        "verbs": ["create", "get", "list", "watch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "get"]},
]
"""As services/controller/README.md has it, but for the owner, which is a ConfigMap here."""
OWNER_RULE = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
CONFIG_MAPS = Resource("v1", "configmaps")


async def test_a_trainer_is_adopted_by_the_next_controller(namespace: Namespace) -> None:
    job = record()
    async with namespace.trainers() as (trainers, workloads):
        async with asyncio.timeout(SECONDS):
            assert await trainers.of(job).ready(Waits()) is False
        uid = workloads.placement(job.id).uid
    async with namespace.trainers() as (trainers, workloads):
        waits = Waits()
        async with asyncio.timeout(SECONDS):
            assert await trainers.of(job).ready(waits) is False
        assert workloads.placement(job.id).uid == uid
        assert waits.all == []
        assert len(await pods_of(namespace, job.id)) == 1
        await trainers.of(job).close(job.id, 10)
    await nothing_left(namespace, job.id)


async def test_a_controller_that_knows_of_nothing_adopts_too(namespace: Namespace) -> None:
    job = record()
    async with namespace.trainers() as (_, workloads):
        await workloads.listed(SECONDS)
        assert await workloads.create(job)
        uid = workloads.placement(job.id).uid
        assert await workloads.create(job)
        assert workloads.placement(job.id).uid == uid
        with pytest.raises(AlreadyExistsError):
            # The same name, from another job's id.
            await namespace.api.create(JOBS, workloads.template.job(job.id, job.spec.trainer))
        await workloads.delete_of(job.id)
        await workloads.delete_of(job.id)
    await nothing_left(namespace, job.id)


async def test_a_deleted_podis_replaced_and_not_counted(namespace: Namespace) -> None:
    job, waits = record(), Waits()
    async with namespace.trainers() as (trainers, _), asyncio.timeout(SECONDS):
        trainer = trainers.of(job)
        await trainer.ready(waits)
        (pod,) = await pods_of(namespace, job.id)
        waits.all.clear()
        await delete_pod(namespace, pod)
        await until(lambda: is_replaced(namespace, job.id, pod))
        assert await trainer.ready(waits) is True
        assert "was deleted" in waits.message("TRAINER_EVICTED")
        assert await trainer.ready(waits) is False


async def test_a_pod_that_the_api_evictsis_replaced_and_not_counted(
    namespace: Namespace,
) -> None:
    job, waits = record(), Waits()
    async with namespace.trainers() as (trainers, _), asyncio.timeout(SECONDS):
        trainer = trainers.of(job)
        await trainer.ready(waits)
        (pod,) = await pods_of(namespace, job.id)
        name = pod["metadata"]["name"]
        eviction = {
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace.api.namespace},
        }
        core = await namespace.raw("GET", "/api/v1")
        kind = next(each for each in core["resources"] if each["name"] == "pods/eviction")
        eviction["apiVersion"] = f"{kind['group']}/{kind['version']}"
        await namespace.api.create(Resource("v1", f"pods/{name}/eviction"), eviction)
        await until(lambda: is_replaced(namespace, job.id, pod))
        assert await trainer.ready(waits) is True
        assert "TRAINER_EVICTED" in waits.reasons


async def test_a_kubernetes_job_that_somebody_deleted_is_made_again(namespace: Namespace) -> None:
    job = record()
    async with namespace.trainers() as (trainers, workloads), asyncio.timeout(SECONDS):
        trainer = trainers.of(job)
        await trainer.ready(Waits())
        uid = workloads.placement(job.id).uid
        await namespace.api.delete(JOBS, workloads.template.name(job.id), uid)
        await until(lambda: workloads.placement(job.id).uid != uid)
        assert await trainer.ready(Waits()) is True
        assert workloads.placement(job.id).uid not in ("", uid)


async def test_a_queued_job_starts_when_it_is_admitted(namespace: Namespace) -> None:
    job, waits = record(queue="team-a"), Waits()
    async with namespace.trainers() as (trainers, workloads), asyncio.timeout(SECONDS):
        found = await trainers.violations(job.spec.trainer)
        if found:
            # Without Kueue this test admits it in Kueue's place.
            assert [each.field for each in found] == ["job.spec.trainer.queue"]
        trainer = trainers.of(job)
        waiting = asyncio.create_task(trainer.ready(waits))
        await until(lambda: "TRAINER_QUEUED" in waits.reasons)
        assert "'team-a'" in waits.message("TRAINER_QUEUED")
        assert await pods_of(namespace, job.id) == []
        await admit(namespace, workloads.template.name(job.id))
        assert await waiting is False


async def test_machines_find_each_other_by_name(namespace: Namespace) -> None:
    # In torchrun's place: the others speak to the first by the name that torchrun is given.
    meet = """
        if [ $PET_NODE_RANK = 0 ]; then
          mkdir /meet && cd /meet && echo "one of $PET_NNODES" >index.html
          exec httpd -f -p $PET_MASTER_PORT
        fi
        until wget -qO /dev/termination-log http://$PET_MASTER_ADDR:$PET_MASTER_PORT/; do
          sleep 0.2
        done
        exit 7
    """
    job = record(nodes=2)
    async with namespace.trainers() as (_, workloads), asyncio.timeout(SECONDS):
        body = workloads.template.job(job.id, job.spec.trainer)
        container = body["spec"]["template"]["spec"]["containers"][0]
        assert container["command"] == ["torchrun", "-m", "podium_trainer"]
        container["command"] = shell(meet)
        await workloads.listed(SECONDS)
        body = await namespace.api.create(JOBS, body)
        assert await workloads.create_service(job, body["metadata"]["uid"])
        assert await workloads.create_service(job, body["metadata"]["uid"])

        async def they_met() -> bool:
            ends = [pod_of(pod).ended for pod in await pods_of(namespace, job.id)]
            return (7, "one of 2") in {(end.exit_code, end.message) for end in ends if end}

        await until(they_met)
        await workloads.delete_of(job.id)
    await nothing_left(namespace, job.id)


async def test_all_goes_with_what_owns_it(namespace: Namespace) -> None:
    owner = await namespace.api.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "release"}}
    )
    job = record()
    async with (
        namespace.trainers(owner="v1/ConfigMap/release") as (trainers, _),
        asyncio.timeout(SECONDS),
    ):
        await trainers.of(job).ready(Waits())
    await namespace.api.delete(CONFIG_MAPS, "release", owner["metadata"]["uid"])
    await nothing_left(namespace, job.id)


async def test_trainers_that_no_job_needs_are_removed(namespace: Namespace) -> None:
    kept, left = record(), record()
    async with namespace.trainers() as (_, workloads), asyncio.timeout(SECONDS):
        await workloads.listed(SECONDS)
        await workloads.create(kept)
        await workloads.create(left)
        workloads.retain({kept.id})
        await nothing_left(namespace, left.id)
        assert workloads.placement(kept.id).uid


async def test_watches_outlive_a_loss_of_the_api_server(namespace: Namespace) -> None:
    file = yaml.safe_load(namespace.kubeconfig.read_text())
    cluster = file["clusters"][0]["cluster"]
    proxy = CuttingProxy(urlsplit(cluster["server"]).port or 443)
    job, other, waits = record(), record(), Waits()
    async with proxy.running(), asyncio.timeout(SECONDS):
        cluster["server"] = f"https://{proxy.address}"
        through = namespace.kubeconfig.with_name("through-a-proxy.conf")
        through.write_text(yaml.safe_dump(file))
        try:
            async with (
                connected(namespace.api.namespace, str(through)) as api,
                namespace.trainers(api=api) as (trainers, workloads),
            ):
                await trainers.of(job).ready(waits)
                (pod,) = await pods_of(namespace, job.id)
                proxy.refuses = True
                proxy.cut()
                # What happens meanwhile is seen afterwards.
                await delete_pod(namespace, pod)
                await until(lambda: is_replaced(namespace, job.id, pod))
                waiting = asyncio.create_task(trainers.of(other).ready(waits))
                await until(lambda: "CLUSTER_UNAVAILABLE" in waits.reasons)
                proxy.refuses = False
                assert await waiting is False
                await until(lambda: len(workloads.placement(job.id).pods) == 2)
                assert await trainers.of(job).ready(waits) is True
        finally:
            through.unlink()


async def test_the_role_of_the_readme_is_enough_and_no_more_is_allowed(
    namespace: Namespace,
) -> None:
    owner = await namespace.api.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "release"}}
    )
    rules = [*ROLE, {**OWNER_RULE, "resourceNames": [owner["metadata"]["name"]]}]
    job = record(nodes=2)
    async with (
        namespace.as_service_account("controller", rules) as api,
        namespace.trainers(api=api, owner="v1/ConfigMap/release") as (trainers, own),
        asyncio.timeout(SECONDS),
    ):
        waiting = asyncio.create_task(trainers.of(job).ready(Waits()))
        await until(lambda: len(own.placement(job.id).pods) == 2 or waiting.done())
        assert not waiting.done()
        await until(lambda: exists(namespace, SERVICES, own.template.name(job.id)))
        waiting.cancel()
        with pytest.raises(PermissionDeniedError, match="secrets"):
            await api.list_all(Selection(Resource("v1", "secrets")))
        await trainers.of(job).close(job.id, 10)
    await nothing_left(namespace, job.id)


async def admit(namespace: Namespace, name: str) -> None:
    """What Kueue does when there is room."""
    job = await namespace.api.get(JOBS, name)
    job["spec"]["suspend"] = False
    await namespace.raw("PUT", JOBS.path(namespace.api.namespace, name), job)


async def test_an_environment_runs_with_its_job_and_leaves_nothing(namespace: Namespace) -> None:
    template = EnvironmentTemplate(environment_template())
    owner = Owner(namespace.api, "")
    environments = KubernetesEnvironments(namespace.api, template, owner)
    wanted = spec_pb2.EnvironmentSpec(name="mine", image=IMAGE)
    job = replace(record("a"), spec=spec_pb2.JobSpec(environment=wanted))
    async with environments.watching(), asyncio.timeout(SECONDS):
        waits = Waits()
        address = await environments.place(job, waits)
        assert address == f"podium-environment-a.{namespace.api.namespace}.svc:50060"
        assert waits.reasons[0] == "ENVIRONMENT_STARTING"
        await environments.close("a", 30)
        for resource in (DEPLOYMENTS, SERVICES, PODS):
            while (await namespace.api.list_all(Selection(resource, JOB_LABEL)))[0]:
                await asyncio.sleep(0.1)
