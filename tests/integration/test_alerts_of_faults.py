"""Faults in real processes, a real Prometheus, the chart's rules: the alert that names each fires.

The controller and the judge are real and in this process, the registry a process of its own.
Times of the rules are shortened, all alike; what is looked at and how much is too much stays.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_golden import render
from podium.core.errors import FailedPreconditionError, PodiumError
from podium.kit.telemetry.metrics import start_metrics_server
from podium.types.v1 import spec_pb2
from prometheus_client import REGISTRY, Gauge
from prometheus_client.metrics import MetricWrapperBase
from support.chart_pods import of_kind
from support.controlled import ATTEMPTS, Client, running_controller, small_job
from support.fleet import Fleet, fleet_of_doubles
from support.processes import RegistryProcess, running_registry
from support.prometheus_server import Prometheus, scraping

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

SHORTER = 150
SECONDS = {"s": 1, "m": 60, "h": 3600}
HERE = {"controller", "registry"}
EVALUATIONS = 20
"""At which nothing else may fire: with these rules, of twenty-five minutes."""


def shorter(duration: re.Match[str]) -> str:
    return f"{int(duration[1]) * SECONDS[duration[2]] * 1000 // SHORTER}ms"


def hasty_rules() -> dict[str, Any]:
    """The chart's rules of what runs here."""
    (found,) = of_kind(render({"monitoring": {"rules": {"enabled": True}}}), "PrometheusRule")
    spec: dict[str, Any] = found["spec"]
    for group in spec["groups"]:
        for rule in group["rules"]:
            expression = re.sub(r"\b(\d+)([smh])\b", shorter, rule["expr"])
            # Ages in seconds.
            rule["expr"] = re.sub(
                r"(?<![\w.:])\d{3,}(?![\w.])", lambda age: f"{int(age[0]) / SHORTER:g}", expression
            )
            for name in ("for", "keep_firing_for"):
                if name in rule:
                    rule[name] = re.sub(r"(\d+)([smh])", shorter, rule[name])
    spec["groups"][-1]["rules"] = [
        rule for rule in spec["groups"][-1]["rules"] if rule["labels"]["podium_component"] in HERE
    ]
    return spec


def labels_of(component: str) -> dict[str, str]:
    return {
        "namespace": "podium",
        "pod": f"{component}-0",
        "podium_release": "podium",
        "podium_component": component,
    }


def firing(prometheus: Prometheus) -> set[str]:
    rules = prometheus.rules()
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, rules
    return {rule["name"] for rule in rules if rule.get("state") == "firing"}


def told(prometheus: Prometheus) -> str:
    """What fires, for whoever reads why a test failed."""
    return "; ".join(
        f"{rule['name']} of {alert['labels']}: {alert['annotations']['description']}"
        for rule in prometheus.rules()
        for alert in rule.get("alerts", [])
    )


def seen(prometheus: Prometheus, expression: str) -> bool:
    now = time.time()
    return bool(prometheus.series(expression, now, now))


async def nothing_else_fires(prometheus: Prometheus, alert: str) -> None:
    """At so many evaluations from now on, whichever of them somebody looks at."""
    began, looked = time.time(), set[str]()

    def enough() -> bool:
        looked.update(r["lastEvaluation"] for r in prometheus.rules() if r["name"] == alert)
        return len(looked) > EVALUATIONS

    await until(enough)
    now = time.time()
    # A machine that is slow may miss scrapes, and no fault that is alerted of otherwise stops a
    # target.
    others = f'ALERTS{{alertstate="firing", alertname!~"{alert}|PodiumTargetMissing"}}'
    window = f"{round((now - began) * 1000)}ms"
    found = prometheus.series(f"count_over_time({others}[{window}])", now, now)
    assert found == [], [each["metric"] for each in found]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.2)


@dataclass
class World:
    """What a fault is done to."""

    fleet: Fleet
    client: Client
    registry: RegistryProcess
    prometheus: Prometheus
    held: ExitStack
    """What a fault holds until the end."""


@pytest.fixture
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


def forget_jobs() -> None:
    """Removes the series of jobs that tests before have left in this process, and what they found.

    Theirs are no jobs of this world: a gradient that one of them checked would be alerted of here,
    as would how a judge's model of theirs leant, or how long a project waited.
    """
    # No public way leads from a registry to its metrics.
    for collector in list(REGISTRY._collector_to_names):
        if not isinstance(collector, MetricWrapperBase) or not collector._labelnames:
            continue
        if "job_id" in collector._labelnames or isinstance(collector, Gauge):
            collector.clear()


@asynccontextmanager
async def watched(registry: RegistryProcess, folder: Path) -> AsyncIterator[World]:
    """A fleet that has done a job while Prometheus watched, and nothing was wrong."""
    forget_jobs()
    (folder / "rules.yml").write_text(yaml.safe_dump(hasty_rules()))
    server = start_metrics_server("127.0.0.1", 0)
    targets = [
        (f"127.0.0.1:{server.port}", labels_of("controller")),
        (registry.metrics_address, labels_of("registry")),
    ]
    try:
        with scraping(folder, targets, ["rules.yml"], interval="500ms") as prometheus:
            async with (
                fleet_of_doubles(registry) as fleet,
                running_controller(fleet, lease_seconds=5.0) as client,
            ):
                await client.succeeded((await client.create(small_job(2), "healthy")).id)
                await until(lambda: seen(prometheus, "count(count_over_time(up[3s]) >= 5) == 2"))
                # Prometheus looks for its targets some seconds after it looks at the rules.
                await until(lambda: not firing(prometheus))
                assert firing(prometheus) == set(), told(prometheus)
                with ExitStack() as held:
                    yield World(fleet, client, registry, prometheus, held)
    finally:
        server.stop()


async def an_environment_fails(world: World) -> None:
    world.fleet.rollout.failing = True
    await world.client.create(small_job(1), "failing")


async def a_gradient_is_no_number(world: World) -> None:
    async def at(point: str, about: str) -> None:
        if point == "step:begin":
            raise FailedPreconditionError("no number", reason="NON_FINITE_GRADIENT")

    world.fleet.at = at
    await world.client.create(small_job(1), "nan")


async def episodes_hang_before_the_first_step(world: World) -> None:
    world.fleet.hold("collect:begin")
    await world.client.create(small_job(1), "hanging")


async def the_registry_dies(world: World) -> None:
    await world.registry.kill()


async def the_judges_model_is_away(world: World) -> None:
    ruler = spec_pb2.RulerSpec(base_url="http://127.0.0.1:9/v1", model="m")
    scorer = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER, ruler=ruler)
    await world.client.create(
        small_job(1, reward=spec_pb2.RewardSpec(scorers=[scorer])), "unjudged"
    )


async def a_stored_file_is_damaged(world: World) -> None:
    version = await world.fleet.client.get_version("healthy", 2)
    digest = version.manifest.files[0].digest
    world.registry.object_of(digest).write_bytes(b"?")
    with pytest.raises(PodiumError):
        await world.fleet.client.pull("healthy", 2, world.fleet.folder / "pulled")


async def all_attempts_are_alike(world: World) -> None:
    world.fleet.trainer.skips = "zero_variance"
    await world.client.create(small_job(100_000), "alike")


async def each_group_is_too_old_once(world: World) -> None:
    asked: Counter[str] = Counter()

    def version_of(group_id: str, version: int) -> int:
        asked[group_id] += 1
        return max(0, version - 1) if asked[group_id] <= ATTEMPTS else version

    world.fleet.rollout.version_of = version_of
    await world.client.create(small_job(100_000), "late")


async def rewards_fall(world: World) -> None:
    real = world.fleet.rollout._episode

    def worth(request: Any, attempt: int) -> Any:
        made = real(request, attempt)
        # Longer than the mean that the rule looks at.
        early = int(request.group_id.split("/")[1].removeprefix("s")) <= 30
        made.environment_reward = 1.0 if early else 0.0
        return made

    world.fleet.rollout._episode = worth  # type: ignore[method-assign]
    world.fleet.step_seconds = 0.5
    await world.client.create(small_job(100_000), "falling")


async def no_rollout_worker_is_left(world: World) -> None:
    await world.client.create(small_job(100_000, recovery_timeout_seconds=3600), "waiting")
    await world.client.until("waiting", lambda job: job.completed_steps > 0)
    await world.fleet.rollout.kill()


async def a_service_that_is_driven_has_a_defect(world: World) -> None:
    async def at(point: str, about: str) -> None:
        if point == "collect:begin" and world.fleet.rollout.calls[point] % 3 == 0:
            raise RuntimeError("a defect")

    world.fleet.at = at
    await world.client.create(small_job(100_000), "broken")


async def another_holds_the_database(world: World) -> None:
    (path,) = world.fleet.folder.glob("in-process/*.db")
    other = world.held.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
    other.execute("BEGIN EXCLUSIVE")


@pytest.mark.parametrize(
    ("fault", "alert"),
    [
        (an_environment_fails, "PodiumJobFailed"),
        (a_gradient_is_no_number, "PodiumNotFinite"),
        (episodes_hang_before_the_first_step, "PodiumJobStalled"),
        (the_registry_dies, "PodiumTargetMissing"),
        (the_judges_model_is_away, "PodiumJudgeDown"),
        (a_stored_file_is_damaged, "PodiumDamagedBlobs"),
        (all_attempts_are_alike, "PodiumGroupsWithoutVariance"),
        (each_group_is_too_old_once, "PodiumGroupsStale"),
        (rewards_fall, "PodiumRewardCollapse"),
        (no_rollout_worker_is_left, "PodiumJobWaitingLong"),
        (a_service_that_is_driven_has_a_defect, "PodiumInternalErrors"),
        (another_holds_the_database, "PodiumNoLeader"),
    ],
)
async def test_a_fault_fires_the_alert_that_names_it(
    fault: Callable[[World], Awaitable[None]],
    alert: str,
    registry: RegistryProcess,
    tmp_path: Path,
) -> None:
    async with watched(registry, tmp_path) as world:
        await fault(world)
        # A machine that is slow may miss a scrape, of which another alert tells for a moment.
        try:
            await until(lambda: firing(world.prometheus) == {alert})
        except TimeoutError:
            raise AssertionError(told(world.prometheus)) from None
        await nothing_else_fires(world.prometheus, alert)
