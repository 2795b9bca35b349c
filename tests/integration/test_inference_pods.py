"""A pool of several pods over real gRPC: any may die, join or be replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from podium.inference.v1 import inference_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.types.v1 import spec_pb2
from podium_controller.training.serving import Serving
from podium_inference.domain import pool as pool_module
from support.certificates import Authority
from support.pool_pods import KEY, NAME, PodDouble, PoolPods, weights
from support.pool_pods_fixtures import Made, call, make, numbers, registry
from support.waiting import eventually

__all__ = ["make", "registry"]


async def answers(pod: PodDouble, job: str, version: int | None = None) -> tuple[str, int]:
    generation = await pod.generate(job, version)
    assert generation.policy == job
    return generation.text, generation.weights_version


class Ledger:
    """A double: every job has ended."""

    async def state_of(self, job_id: str) -> int:
        return jobs_pb.JOB_STATE_FAILED


def serving(pods: PoolPods, job: str, version: int) -> Serving:
    made = Serving(job, pods.inference, Ledger(), None)  # type: ignore[arg-type]
    made.version = version
    return made


@pytest.mark.parametrize("merged", [True, False])
async def test_a_version_is_loaded_into_every_pod(make: Made, merged: bool) -> None:
    pods = await make(3, merged=merged)
    job = await pods.published(1, 2)
    first = await pods.inference.load(job, 1)
    assert (first.policy.version, first.already_loaded) == (1, False)
    assert (await pods.inference.load(job, 1)).already_loaded
    assert not (await pods.inference.load(job, 2)).already_loaded
    for pod in pods.named:
        assert await answers(pod, job, 2) == (weights(job, 2), 2)
    served = {(p.job, p.version) for p in await pods.inference.policies()}
    assert served == ({(job, 2)} if merged else {("", 0), (job, 1), (job, 2)})
    await pods.inference.unload(job)
    for pod in pods.named:
        assert [s.job for s in pod.pool.served()] == [""]


async def test_weights_come_in_flight_into_each_pod_by_itself(make: Made) -> None:
    pods = await make(2)
    job = await pods.published(1, 2)
    await pods.inference.load(job, 1)
    held = asyncio.Event()
    for pod in pods.named:
        pod.engine.hold = held
    running = [asyncio.create_task(pod.generate(job)) for pod in pods.named]
    for pod in pods.named:
        await eventually(lambda pod=pod: pod.pool.served()[0].running == 1)
    await pods.inference.load(job, 2, spec_pb2.WEIGHT_UPDATE_IN_FLIGHT)
    assert [(s.version, s.running) for pod in pods.named for s in pod.pool.served()] == [(2, 1)] * 2
    assert not any(task.done() for task in running)
    held.set()
    await asyncio.gather(*running)


@pytest.mark.parametrize("merged", [True, False])
async def test_a_client_that_reaches_one_pod_loads_a_version_into_all(
    make: Made, merged: bool
) -> None:
    pods = await make(3, merged=merged)
    job = await pods.published(1, 2)
    async with pods.named[1].policies() as policies:
        first = await policies.load(job, 1)
        assert (first.policy.version, first.already_loaded) == (1, False)
        assert (await policies.load(job, 1)).already_loaded
        await pods.named[2].pool.load(job, 2, 1)
        assert not (await policies.load(job, 2)).already_loaded
        for pod in pods.named:
            assert next(s.version for s in pod.pool.served() if s.job) == 2


async def test_what_one_pod_refuses_a_client_is_told_after_the_others_have_answered(
    make: Made,
) -> None:
    pods = await make(3)
    old, new = await pods.published(1), await pods.published(1)
    await pods.named[0].pool.load(old, 1, 1)
    async with pods.named[1].policies() as policies:
        with pytest.raises(FailedPreconditionError) as caught:
            await policies.load(new, 1)
    assert caught.value.reason == "POOL_IN_USE"
    assert [s.job for pod in pods.named for s in pod.pool.served()] == [old, new, new]


async def test_a_pod_that_is_away_when_a_client_loads_is_left_out(make: Made) -> None:
    pods = await make(3)
    job = await pods.published(1)
    await pods.named[0].kill()
    async with pods.named[1].policies() as policies:
        assert (await policies.load(job, 1)).policy.version == 1
    assert [s.job for s in pods.named[2].pool.served()] == [job]


async def test_t24_a_dead_pod_is_survived_and_the_one_in_its_place_fetches_for_itself(
    make: Made,
) -> None:
    pods = await make(2)
    one, two = pods.named
    job = await pods.published(1, 2)
    await pods.inference.load(job, 1)
    await two.kill()
    loaded = await pods.inference.load(job, 2)
    assert (loaded.policy.version, loaded.already_loaded) == (2, False)
    assert (await pods.inference.engine()).base_model == "double"
    await two.start()
    assert await answers(two, job, 2) == (weights(job, 2), 2)
    assert await answers(one, job, 2) == (weights(job, 2), 2)
    assert (await pods.inference.load(job, 2)).already_loaded


async def test_a_pod_that_joined_is_called_from_then_on(make: Made) -> None:
    pods = await make(1)
    job = await pods.published(1)
    await pods.inference.load(job, 1)
    await pods.pods[1].start()
    pods.named = pods.pods[:2]
    assert not (await pods.inference.load(job, 1)).already_loaded
    assert [s.version for s in pods.pods[1].pool.served()] == [1]


async def test_a_pool_without_a_pod_is_away(make: Made) -> None:
    pods = await make(2)
    job = await pods.published(1)
    for pod in pods.named:
        await pod.kill()
    with pytest.raises(UnavailableError):
        await pods.inference.load(job, 1)
    pods.named = []
    with pytest.raises(UnavailableError, match="no pod of the pool is ready"):
        await pods.inference.load(job, 1)


async def test_each_pod_says_how_busy_it_is_if_it_does(make: Made) -> None:
    pods = await make(3)
    assert await pods.inference.loads() == [None] * 3
    first, second, _ = pods.named
    first.says = pb.EngineLoad(running=4, waiting=3, places=4, kv_cache_usage=0.5)
    await first.kill()
    await first.start()
    await second.kill()
    first.engine.hold = asyncio.Event()
    asked = asyncio.create_task(first.generate())
    # No more can be there than the process has; and the pod that is gone says nothing.
    one = pb.EngineLoad(running=1, places=4, kv_cache_usage=0.5)
    while await pods.inference.loads() != [one, None]:
        await asyncio.sleep(0.01)
    first.engine.hold.set()
    await asked
    assert (await pods.inference.loads())[0] == pb.EngineLoad(places=4)


async def test_what_one_pod_refuses_is_refused_after_all_have_answered(make: Made) -> None:
    pods = await make(2)
    one, two = pods.named
    old, new = await pods.published(1), await pods.published(1)
    await two.pool.load(old, 1, 1)
    with pytest.raises(FailedPreconditionError) as caught:
        await pods.inference.load(new, 1)
    assert caught.value.reason == "POOL_IN_USE"
    assert [s.job for s in one.pool.served()] == [new]


async def test_what_an_ended_job_has_left_in_one_pod_makes_room(make: Made) -> None:
    pods = await make(3)
    old, new = await pods.published(1), await pods.published(4)
    await pods.named[1].pool.load(old, 1, 1)
    assert await serving(pods, new, 4).reload()
    for pod in pods.named:
        assert await answers(pod, new, 4) == (weights(new, 4), 4)


async def test_however_many_ask_a_version_is_fetched_once(make: Made) -> None:
    pods = await make(1)
    (pod,) = pods.named
    job = await pods.published(3)
    asked = [answers(pod, job, 3) for _ in range(20)] + [answers(pod, job) for _ in range(20)]
    assert set(await asyncio.gather(*asked)) == {(weights(job, 3), 3)}
    assert pod.engine.merges == 1


async def test_a_job_without_a_version_is_its_newest_where_nothing_is_loaded(make: Made) -> None:
    pods = await make(1, merged=False)
    (pod,) = pods.named
    job = await pods.published(1, 2)
    assert await answers(pod, job) == (weights(job, 2), 2)
    await pods.publish(job, 3)
    # What is loaded answers: nobody asks the registry at every call.
    assert await answers(pod, job) == (weights(job, 2), 2)
    assert await answers(pod, job, 1) == (weights(job, 1), 1)
    assert await answers(pod, job, 3) == (weights(job, 3), 3)


@pytest.mark.parametrize("version", [None, 7])
async def test_what_the_registry_lacks_is_said(make: Made, version: int | None) -> None:
    pods = await make(1)
    job = await pods.published(*([1] if version else []))
    with pytest.raises(NotFoundError, match=f"no (version {job}@7|alias 'latest')") as caught:
        await pods.named[0].generate(job, version)
    assert caught.value.reason == "POLICY_NOT_LOADED"


async def test_requests_exchange_merged_weights_forward_alone(make: Made) -> None:
    pods = await make(1)
    (pod,) = pods.named
    job, other = await pods.published(1, 2, 3), await pods.published(1)
    await pods.inference.load(job, 2)
    for asked, version, why in ((job, 1, f"{job}@2, which is newer"), (other, 1, f"{job}@2 is")):
        with pytest.raises(NotFoundError, match=why) as caught:
            await pod.generate(asked, version)
        assert caught.value.reason == "POLICY_NOT_LOADED"
    with pytest.raises(NotFoundError, match="the base model"):
        await pod.generate()
    assert await answers(pod, job) == (weights(job, 2), 2)
    assert pod.engine.merges == 1
    # It missed the load, say.
    assert await answers(pod, job, 3) == (weights(job, 3), 3)
    # Whoever decides may go back.
    await pods.inference.load(job, 1)
    assert await answers(pod, job, 1) == (weights(job, 1), 1)


async def test_a_request_for_an_older_version_loses_against_a_load_that_runs(make: Made) -> None:
    pods = await make(1)
    (pod,) = pods.named
    job = await pods.published(1, 2)
    pod.engine.hold = asyncio.Event()
    running = asyncio.create_task(pod.generate())
    while not pod.pool.served()[0].running:
        await asyncio.sleep(0.01)
    load = asyncio.create_task(pods.inference.load(job, 2))
    while pod.pool._open.is_set():
        await asyncio.sleep(0.01)
    older = asyncio.create_task(pod.generate(job, 1))
    await asyncio.sleep(0.1)
    pod.engine.hold.set()
    await load
    assert (await running).text == "base"
    with pytest.raises(NotFoundError):
        await older
    assert await answers(pod, job) == (weights(job, 2), 2)


@pytest.mark.parametrize("merged", [True, False])
async def test_what_was_unloaded_is_not_brought_back_by_a_straggler(
    make: Made, merged: bool
) -> None:
    pods = await make(1, merged=merged)
    (pod,) = pods.named
    job = await pods.published(1)
    await pods.inference.load(job, 1)
    await pods.inference.unload(job)
    for version in (None, 1):
        with pytest.raises(NotFoundError, match="it was unloaded") as caught:
            await pod.generate(job, version)
        assert caught.value.reason == "POLICY_NOT_LOADED"
    assert (await pod.generate()).text == "base"
    await pods.inference.load(job, 1)
    assert await answers(pod, job) == (weights(job, 1), 1)


async def test_of_what_only_requests_brought_the_longest_unused_goes(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_MOST_ON_DEMAND", 2)
    pods = await make(1, merged=False)
    (pod,) = pods.named
    told = await pods.published(1)
    await pods.inference.load(told, 1)
    first, second, third = [await pods.published(1) for _ in range(3)]
    for job in (first, second, first, third):
        assert await answers(pod, job, 1) == (weights(job, 1), 1)
    assert {s.job for s in pod.pool.served()} == {"", told, first, third}
    assert set(pod.engine.adapters) == {f"{job}@1" for job in (told, first, third)}
    assert await answers(pod, second, 1) == (weights(second, 1), 1)


async def test_a_pod_serves_what_its_siblings_serve_before_it_is_ready(make: Made) -> None:
    pods = await make(2, merged=False)
    one, two = [await pods.published(1, 2) for _ in range(2)]
    for job, version in ((one, 1), (one, 2), (two, 1)):
        await pods.inference.load(job, version)
    third = pods.pods[2]
    await third.start(joining=True)
    served = {(s.job, s.version) for s in third.pool.served()}
    assert served == {("", 0), (one, 1), (one, 2), (two, 1)}


async def test_a_pod_starts_without_siblings_that_answer(make: Made) -> None:
    pods = await make(2)
    job = await pods.published(1)
    await pods.inference.load(job, 1)
    for pod in pods.named:
        await pod.kill()
    await pods.pods[2].start(joining=True)
    assert await answers(pods.pods[2], job) == (weights(job, 1), 1)


async def test_pods_are_dialled_by_address_with_the_pools_name_in_their_certificates(
    make: Made, tmp_path: Path
) -> None:
    certificate = Authority("test").issue(tmp_path / "tls", NAME)
    pods = await make(2, certificate=certificate)
    job = await pods.published(1)
    await pods.inference.load(job, 1)
    assert (f"127.0.0.2:{pods.port}", NAME) in pods.dialled
    for pod in pods.named:
        assert await answers(pod, job) == (weights(job, 1), 1)
        pod.captures.add(KEY, call(1, 1))
    assert numbers(await pods.named[0].take()) == [1, 1]
