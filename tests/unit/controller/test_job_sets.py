"""When trainers are JobSets: as the settings and the cluster say, and what was made before."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import UnavailableError
from podium.kit.kubernetes.api import JOBS
from podium_controller.cluster.jobset import JOBSETS, JobSets
from support.cluster import Waits, record
from support.fake_api import FakeApi
from support.fake_cluster_trainers import controller, pods, starting, until
from support.fake_job_sets import FakeJobSets


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
