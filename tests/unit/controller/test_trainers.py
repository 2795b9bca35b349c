"""Trainers as Jobs and as JobSets, in a cluster in memory: made, queued, adopted and removed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
from podium.core.errors import UnavailableError
from podium.kit.kubernetes.api import JOBS, PODS, SERVICES
from podium.kit.kubernetes.object_template import Manifest
from podium_controller.cluster.jobset import JOBSETS, JobSets
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.cluster.trainers import KubernetesTrainers
from podium_controller.cluster.workloads import Workloads
from podium_controller.domain import metrics
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord
from prometheus_client import REGISTRY
from support.cluster import Waits, record, template
from support.fake_api import FakeApi
from support.fake_job_sets import FakeJobSets

QUEUE = "kueue.x-k8s.io/queue-name"
NAME = "podium-trainer-a"
OWNER = "apps/v1/Deployment/podium-controller"

_uids = itertools.count(1)


@pytest.fixture(params=[FakeApi, FakeJobSets], ids=["a Job", "a JobSet"])
def api(request: pytest.FixtureRequest) -> FakeApi:
    """A cluster without JobSets, and one with them."""
    made: FakeApi = request.param()
    return made


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


async def test_a_suspended_trainer_waits_in_its_queue_by_name_and_goes_on_when_admitted(
    api: FakeApi,
) -> None:
    job, waits = record("a", queue="team-a"), Waits()
    async with controller(api) as trainers:
        waiting = starting(trainers, job, waits)
        await until(lambda: "TRAINER_QUEUED" in waits.reasons)
        assert "'team-a'" in waits.message("TRAINER_QUEUED")
        assert [each["spec"]["suspend"] for each in api.of(JOBS)] == [True]
        admit(api)
        await until(lambda: waits.reasons[-1] == "TRAINER_STARTING")
        assert not waiting.done()
        pods(api)
        assert await waiting is False
        # What was admitted and takes the place back: the same again.
        made_of(api)["spec"]["suspend"] = True
        api.put(JOBSETS if api.of(JOBSETS) else JOBS, made_of(api))
        waits.all.clear()
        await trainers.of(job).hang_up()
        again = starting(trainers, job, waits)
        await until(lambda: waits.reasons == ["TRAINER_QUEUED"])
        again.cancel()


async def test_kueue_sees_one_thing_to_admit(api: FakeApi) -> None:
    async with controller(api) as trainers:
        waits = Waits()
        waiting = starting(trainers, record("a", queue="team-a"), waits)
        await until(lambda: "TRAINER_QUEUED" in waits.reasons)
        waiting.cancel()
    every = [*api.of(JOBSETS), *api.of(JOBS)]
    with_queue = [each for each in every if QUEUE in each["metadata"]["labels"]]
    assert with_queue == [made_of(api)]
    assert with_queue[0]["metadata"]["labels"][QUEUE] == "team-a"
    assert with_queue[0]["metadata"]["name"] == NAME
    for each in api.of(JOBSETS):
        (member,) = each["spec"]["replicatedJobs"]
        assert "suspend" not in member["template"]["spec"]
        assert member["replicas"] == 1
        assert each["spec"]["failurePolicy"] == {"maxRestarts": 0}


async def test_a_trainer_goes_with_all_that_it_owns(api: FakeApi) -> None:
    api.objects["deployments", "podium-controller"] = {
        "metadata": {"name": "podium-controller", "uid": "release"}
    }
    job = record("a", nodes=2)
    async with controller(api, OWNER) as trainers:
        waiting = starting(trainers, job)
        await until(lambda: len(api.of(JOBS)) == 1)
        pods(api)
        await waiting
        await until(lambda: len(api.of(SERVICES)) == 1)
        (owner,) = made_of(api)["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Deployment", "release")
        kind = made_of(api)["kind"].lower()
        await trainers.of(job).close("a", 60)
    assert [each for kind in (JOBSETS, JOBS, PODS, SERVICES) for each in api.of(kind)] == []
    assert [call for call in api.calls if call.startswith("delete")] == [f"delete {kind}s"]


async def test_the_machines_are_given_the_name_that_the_first_one_has(api: FakeApi) -> None:
    async with controller(api) as trainers:
        waiting = starting(trainers, record("a", nodes=2))
        await until(lambda: len(api.of(JOBS)) == 1)
        first, second = pods(api)
        await waiting
        await until(lambda: len(api.of(SERVICES)) == 1)
    (service,) = api.of(SERVICES)
    assert first["spec"]["subdomain"] == service["metadata"]["name"] == NAME
    assert service["spec"]["publishNotReadyAddresses"] is True
    for pod in (first, second):
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        found = {each["name"]: each.get("value") for each in container["env"]}
        name = f"{first['spec']['hostname']}.{service['metadata']['name']}"
        assert found["PET_MASTER_ADDR"] == name


async def test_one_machine_alone_has_no_service(api: FakeApi) -> None:
    async with controller(api) as trainers:
        waiting = starting(trainers, record("a"))
        await until(lambda: len(api.of(JOBS)) == 1)
        pods(api)
        await waiting
    assert api.of(SERVICES) == []


async def test_a_trainer_is_adopted_by_the_next_controller(api: FakeApi) -> None:
    job = record("a", nodes=2)
    async with controller(api) as trainers:
        waiting = starting(trainers, job)
        await until(lambda: len(api.of(JOBS)) == 1)
        pods(api)
        await waiting
    before = made_of(api)["metadata"]["uid"]
    async with controller(api) as trainers:
        waits = Waits()
        assert await trainers.of(job).ready(waits) is False
        assert waits.all == []
        assert made_of(api)["metadata"]["uid"] == before
        await trainers.of(job).close("a", 60)
    assert [*api.of(JOBSETS), *api.of(JOBS)] == []


async def test_a_job_of_before_there_were_job_sets_is_adopted_and_removed_as_one() -> None:
    api = FakeJobSets()
    job = record("a")
    async with controller(api, job_sets="never") as trainers:
        waiting = starting(trainers, job)
        await until(lambda: len(api.of(JOBS)) == 1)
        pods(api)
        await waiting
    async with controller(api) as trainers:
        assert await trainers.of(job).ready(Waits()) is False
        assert api.of(JOBSETS) == []
        await trainers.of(job).close("a", 60)
    assert [*api.of(JOBSETS), *api.of(JOBS)] == []


async def test_a_trainer_that_no_job_needs_is_removed(api: FakeApi) -> None:
    async with controller(api) as trainers:
        waiting = starting(trainers, record("a"))
        await until(lambda: len(api.of(JOBS)) == 1)
        waiting.cancel()
        await trainers.retain({"a"})
        assert made_of(api)
        # By now the watch has told of it.
        await until(lambda: len(trainers._workloads._view.job_ids) == 1)
        await trainers.retain(set())
        await until(lambda: not [*api.of(JOBSETS), *api.of(JOBS)])


async def test_what_has_ended_is_replaced_and_no_sooner_than_it_is_gone(api: FakeApi) -> None:
    api.lingers = True
    async with controller(api) as trainers:
        waiting = starting(trainers, record("a"))
        await until(lambda: len(api.of(JOBS)) == 1)
        former, (ended,) = made_of(api), api.of(JOBS)
        gone = ended["metadata"]["uid"]
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        api.put(JOBS, {**ended, "status": {"conditions": [failed]}})
        if former["kind"] == "JobSet":
            await until(lambda: api.calls.count("get jobsets") == 2)
            assert api.of(JOBSETS) == [former]
            api.remove(JOBSETS, NAME)
        await until(lambda: api.of(JOBS) != [] and api.of(JOBS)[0]["metadata"]["uid"] != gone)
        assert made_of(api)["metadata"]["uid"] != former["metadata"]["uid"]
        pods(api)
        await waiting


async def test_a_job_that_somebody_deleted_is_made_again(api: FakeApi) -> None:
    job = record("a")
    async with controller(api) as trainers:
        waiting = starting(trainers, job)
        await until(lambda: len(api.of(JOBS)) == 1)
        pods(api)
        assert await waiting is False
        (former,) = api.of(JOBS)
        api.remove(JOBS, former["metadata"]["name"])
        again = starting(trainers, job)
        if isinstance(api, FakeJobSets):
            await until(lambda: "get jobsets" in api.calls)
            api.reconcile()
        await until(lambda: len(api.of(JOBS)) == 1)
        pods(api)
        assert await again is True
        assert len(api.of(JOBSETS)) == (1 if api.apis else 0)


async def test_bad_settings_fail_the_job(api: FakeApi) -> None:
    async with controller(api) as trainers:
        waiting = starting(trainers, record("a"))
        await until(lambda: len(api.of(JOBS)) == 1)
        ended = {"terminated": {"exitCode": 2, "message": "PODIUM_TRAINER_PORT: got 'x'"}}
        pods(api, phase="Failed", containerStatuses=[{"name": "trainer", "state": ended}])
        with pytest.raises(JobFailedError, match="PODIUM_TRAINER_PORT") as raised:
            await waiting
        assert raised.value.reason == "TRAINER_MISCONFIGURED"


async def test_a_crash_is_counted_though_another_pod_takes_its_place(api: FakeApi) -> None:
    def counted() -> float:
        labels = {"job_id": job.id, "reason": "TRAINER_CRASHED"}
        return REGISTRY.get_sample_value("podium_controller_trainer_ends_total", labels) or 0

    job = record()
    async with controller(api) as trainers:
        waiting = starting(trainers, job)
        await until(lambda: bool(api.of(JOBS)))
        ended = {"terminated": {"exitCode": 1, "message": "CUDA error"}}
        pods(api, phase="Failed", containerStatuses=[{"name": "trainer", "state": ended}])
        await until(lambda: counted() == 1)
        pods(api)
        await waiting
    assert counted() == 1
    metrics.forget_job(job.id)
    assert counted() == 0


async def test_a_job_set_whose_controller_is_away_is_told_and_waited_for() -> None:
    api = FakeJobSets()
    api.at_work = False
    job, waits = record("a"), Waits()
    async with controller(api) as trainers:
        waiting = starting(trainers, job, waits)
        await until(lambda: "made no Job" in waits.message("TRAINER_STARTING"))
        assert api.of(JOBS) == []
        assert api.calls.count("create jobsets") == 1
        api.at_work = True
        api.reconcile()
        pods(api)
        assert await waiting is False
        assert api.calls.count("create jobsets") == 1
    other = FakeJobSets()
    other.at_work = False
    async with controller(other) as trainers:
        waiting = starting(trainers, job)
        await until(lambda: len(other.of(JOBSETS)) == 1)
        waiting.cancel()
        # One that has made nothing is found by its name.
        await trainers.of(job).close("a", 60)
        assert other.of(JOBSETS) == []


async def test_another_installations_object_of_that_name_is_left_alone(api: FakeApi) -> None:
    resource = JOBSETS if api.apis else JOBS
    foreign = {"kind": "Any", "metadata": {"name": NAME, "labels": {"podium.dev/job": "a"}}}
    FakeApi.put(api, resource, foreign)
    async with controller(api) as trainers:
        with pytest.raises(JobFailedError) as raised:
            await trainers.of(record("a")).ready(Waits())
        assert raised.value.reason == "TRAINER_NAME_TAKEN"
        await trainers.of(record("a")).close("a", 60)
    assert api.of(resource) == [foreign]


@pytest.mark.parametrize(
    ("use", "served", "resource"),
    [
        ("auto", True, JOBSETS),
        ("auto", False, JOBS),
        ("always", True, JOBSETS),
        ("never", True, JOBS),
    ],
)
async def test_job_sets_are_used_as_the_settings_and_the_cluster_say(
    use: Any, served: bool, resource: Any
) -> None:
    api = FakeJobSets() if served else FakeApi()
    job_sets = JobSets(api, use)  # type: ignore[arg-type]
    assert await job_sets.resource() is resource
    assert await job_sets.resource() is resource
    assert api.calls.count("get groups") == (0 if use == "never" else 1)


async def test_another_version_of_job_sets_is_none() -> None:
    api = FakeApi()
    api.apis = {"jobset.x-k8s.io", "jobset.x-k8s.io/v1alpha1"}
    assert await JobSets(api, "auto").resource() is JOBS  # type: ignore[arg-type]


async def test_a_cluster_that_lacks_the_job_sets_that_must_be_is_waited_for() -> None:
    api = FakeApi()
    job, waits = record("a"), Waits()
    async with controller(api, job_sets="always") as trainers:
        waiting = starting(trainers, job, waits)
        await until(lambda: "CLUSTER_UNAVAILABLE" in waits.reasons)
        assert JOBSETS.api_version in waits.message("CLUSTER_UNAVAILABLE")
        with pytest.raises(UnavailableError):
            await trainers.of(job).close("a", 60)
        assert api.of(JOBS) == []
        waiting.cancel()


async def test_a_trainer_is_made_for_the_pool_where_the_job_is_placed_now(api: FakeApi) -> None:
    pools = {pool: template(workingDir=f"/models/{pool}") for pool in ("small", "large")}
    async with controller(api, by_pool=pools) as trainers:
        # It was known before it was placed.
        job = record("a")
        trainers.of(job)
        waiting = starting(trainers, replace(job, pool="large"))
        await until(lambda: bool(api.of(JOBS)))
        (made,) = api.of(JOBS)
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert container["workingDir"] == "/models/large"
        pods(api)
        async with asyncio.timeout(60):
            assert not await waiting
