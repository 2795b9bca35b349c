"""A real Prometheus scrapes a real job: panels and rules evaluate, and show what they should."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import dashboards
import grpc
import pytest
import yaml
from chart_golden import render
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.local.launcher import Launcher
from podium.types.v1 import spec_pb2
from support.chart_pods import of_kind
from support.jobs import create, small_spec, wait_until
from support.prometheus_server import Prometheus, scraping

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


def rules() -> dict[str, Any]:
    """The chart's, of one pool."""
    values = {"monitoring": {"rules": {"enabled": True}}, "pools": [{"name": "default"}]}
    (found,) = of_kind(render(values), "PrometheusRule")
    spec: dict[str, Any] = found["spec"]
    return spec


def job_of_four_steps() -> spec_pb2.JobSpec:
    spec = small_spec(100)
    spec.evaluation.split = "heldout"
    spec.evaluation.scenarios = 1
    spec.evaluation.every_steps = 2
    return spec


def filled(expression: str, job_id: str) -> str:
    for name, value in {
        "$namespace": "podium",
        "$release": "podium",
        "$job": job_id,
        "$pool": POOL,
        "$__rate_interval": "10s",
        "$__range": "10m",
    }.items():
        expression = expression.replace(name, value)
    return expression


def empty(prometheus: Prometheus, job_id: str, began: float) -> set[str]:
    """What shows nothing and should; every other expression is evaluated too."""
    found = set()
    for name in dashboards.BOARDS:
        needed = set(dashboards.expressions(name, needed=True))
        for expression in dashboards.expressions(name):
            shown = prometheus.series(filled(expression, job_id), began, time.time())
            if not shown and expression in needed:
                found.add(f"{name}: {expression}")
    return found


async def test_every_panel_shows_a_real_job_and_no_rule_fires(
    real_stack: Launcher, tmp_path: Path
) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules()))
    targets = [(real_stack.metrics_address(name), labels_of(name)) for name in SERVICES]
    began = time.time()
    with scraping(tmp_path, targets, rule_files=["rules.yml"]) as prometheus:
        async with grpc.aio.insecure_channel(real_stack.address("controller")) as channel:
            stub = jobs_grpc.JobServiceStub(channel)
            job_id = await create(stub, job_of_four_steps(), "dashboards")
            await wait_until(stub, job_id, lambda job: job.completed_steps >= 4, within=600)
            # What the last step has left is scraped within two seconds, and rates take two scrapes.
            until = time.monotonic() + 60
            while (missing := empty(prometheus, job_id, began)) and time.monotonic() < until:
                await asyncio.sleep(2)
            states = prometheus.rules()
            await stub.CancelJob(jobs.CancelJobRequest(job_id=job_id), timeout=30)
    assert missing == set()
    assert {rule["health"] for rule in states} == {"ok"}
    assert [rule["name"] for rule in states if rule.get("state") == "firing"] == []
