"""A real Prometheus scrapes a real job: panels and rules evaluate, and show what they should."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import grpc
import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.local.launcher import Launcher
from podium.types.v1 import spec_pb2
from support.jobs import create, small_spec, wait_until
from support.prometheus_server import scraping
from support.shown_panels import empty, unwell, write_rules

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.full,
    pytest.mark.timeout(1200),
]

SERVICES = ("controller", "registry", "inference", "rollout", "judge", "trainer")
POOL = "inference-default"


def labels_of(service: str) -> dict[str, str]:
    """As the chart's PodMonitor gives them, in a release `podium`."""
    component = POOL if service == "inference" else service
    return {
        "namespace": "podium",
        "pod": f"{component}-0",
        "podium_release": "podium",
        "podium_component": component,
    }


def job_of_four_steps() -> spec_pb2.JobSpec:
    spec = small_spec(100)
    spec.evaluation.split = "heldout"
    spec.evaluation.scenarios = 1
    spec.evaluation.every_steps = 2
    return spec


def variables(job_id: str) -> dict[str, str]:
    """As Grafana fills them in."""
    return {
        "$namespace": "podium",
        "$release": "podium",
        "$job": job_id,
        "$pool": POOL,
        "$__rate_interval": "10s",
        "$__range": "10m",
    }


async def test_every_panel_shows_a_real_job_and_no_rule_fires(
    real_stack: Launcher, tmp_path: Path
) -> None:
    rules = write_rules(tmp_path, "podium", "podium")
    targets = [(real_stack.metrics_address(name), labels_of(name)) for name in SERVICES]
    began = time.time()
    with scraping(tmp_path, targets, rules) as prometheus:
        async with grpc.aio.insecure_channel(real_stack.address("controller")) as channel:
            stub = jobs_grpc.JobServiceStub(channel)
            job_id = await create(stub, job_of_four_steps(), "dashboards")
            await wait_until(stub, job_id, lambda job: job.completed_steps >= 4, within=600)
            # What the last step has left is scraped within two seconds, and rates take two scrapes.
            until = time.monotonic() + 60
            shown = variables(job_id)
            while missing := empty(prometheus, shown, began, cluster=False):
                if time.monotonic() > until:
                    break
                await asyncio.sleep(2)
            states, wrong = prometheus.rules(), unwell(prometheus)
            await stub.CancelJob(jobs.CancelJobRequest(job_id=job_id), timeout=30)
    assert missing == []
    assert wrong == []
    assert [rule["name"] for rule in states if rule.get("state") == "firing"] == []
