"""Trainers as Jobs and as JobSets, in a cluster in memory: made, queued, adopted and removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from podium.kit.kubernetes.api import JOBS, PODS, SERVICES
from podium_controller.cluster.jobset import JOBSETS
from podium_controller.domain import metrics
from podium_controller.domain.errors import JobFailedError
from prometheus_client import REGISTRY
from support.cluster import Waits, record, template
from support.fake_api import FakeApi
from support.fake_cluster_trainers import admit, controller, made_of, pods, starting, until
from support.fake_job_sets import FakeJobSets

QUEUE = "kueue.x-k8s.io/queue-name"
NAME = "podium-trainer-a"
OWNER = "apps/v1/Deployment/podium-controller"


@pytest.fixture(params=[FakeApi, FakeJobSets], ids=["a Job", "a JobSet"])
def api(request: pytest.FixtureRequest) -> FakeApi:
    """A cluster without JobSets, and one with them."""
    made: FakeApi = request.param()
    return made


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
