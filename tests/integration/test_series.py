"""Series after many jobs: as many as after the first, in what every service here exposes.

Controller and judge are real and in this process, and so is what all share; the registry is a
process of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import spec_pb2
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.controlled import Client, running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.full import full, long
from support.processes import RegistryProcess

__all__ = ["fleet", "registry"]

pytestmark = pytest.mark.timeout(300)

_OF_CALLS = {"service", "method", "code", "le"}

Series = frozenset[tuple[str, tuple[tuple[str, str], ...]]]


def series_of(exposition: str) -> Series:
    """Without those of calls by their method and code alone: the contract bounds them, and any may
    be called, or fail, for the first time late."""
    return frozenset(
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if not {"service", "method"} <= sample.labels.keys() <= _OF_CALLS
    )


async def exposed(registry: RegistryProcess) -> dict[str, Series]:
    """What a Prometheus would find now, by process."""
    async with httpx.AsyncClient(trust_env=False) as client:
        other = await client.get(f"http://{registry.metrics_address}/metrics")
    return {
        "controller and judge": series_of(generate_latest(REGISTRY).decode()),
        "registry": series_of(other.text),
    }


async def evaluated(client: Client, job_id: str) -> None:
    spec = small_job(1, project=f"team-{job_id}")
    spec.evaluation.CopyFrom(spec_pb2.EvaluationSpec(split="heldout"))
    await client.create(spec, job_id)
    await client.succeeded(job_id)


async def failed(client: Client, job_id: str) -> None:
    ruler = spec_pb2.RulerSpec(base_url="http://127.0.0.1:9/v1", model=f"model-of-{job_id}")
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    spec = small_job(1, reward=spec_pb2.RewardSpec(scorers=[scorer]), recovery_timeout_seconds=1)
    await client.create(spec, job_id)
    async with asyncio.timeout(60):
        while (await client.get(job_id)).state != pb.JOB_STATE_FAILED:
            await asyncio.sleep(0.05)


async def paused_and_cancelled(client: Client, job_id: str) -> None:
    await client.create(small_job(1000), job_id)
    await client.until(job_id, lambda job: job.completed_steps > 0)
    await client.pause(job_id)
    await client.state(job_id, pb.JOB_STATE_PAUSED)
    await client.resume(job_id)
    await client.until(job_id, lambda job: job.state == pb.JOB_STATE_RUNNING)
    await client.cancel(job_id)
    await client.state(job_id, pb.JOB_STATE_CANCELLED)


async def ended(client: Client, job_id: str, run: Callable[[Client, str], Awaitable[None]]) -> None:
    await run(client, job_id)
    with rpc_errors("controller"):
        await client.stub.DeleteJob(pb.DeleteJobRequest(job_id=job_id))


@pytest.mark.parametrize("jobs", [long(6), full(50)])
async def test_jobs_leave_the_series_of_the_first(
    fleet: Fleet, registry: RegistryProcess, jobs: int
) -> None:
    kinds = (evaluated, failed, paused_and_cancelled)
    async with running_controller(fleet, poll_seconds=0.05) as client:
        # The registry outlives the case, and a deleted job's versions keep its id.
        for number, kind in enumerate(kinds):
            await ended(client, f"first-of-{jobs}-{number}", kind)
        before = await exposed(registry)
        for number in range(jobs):
            kind = kinds[number % 3 if number % 10 < 3 else 0]
            await ended(client, f"later-of-{jobs}-{number}", kind)
        after = await exposed(registry)
    for process, found in after.items():
        assert found == before[process], process
