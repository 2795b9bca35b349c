"""The service beside a real controller: trackers that are dead, hang or come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import ParseDict
from podium.types.v1 import spec_pb2
from support.controlled import ATTEMPTS, GROUPS, Client, small_job
from support.controlled_fixtures import client, fleet, registry
from support.trackers import LangfuseServer, langfuse_server, openpipe_server
from support.tracking import TrackingProcess
from support.wandb_server import WandbServer, wandb_server

__all__ = ["client", "fleet", "registry"]

pytestmark = pytest.mark.timeout(300)

KEY = "k" * 40
STEPS = 3


async def until(condition: Callable[[], bool], what: str, log: Path) -> None:
    """Waits for it; the service's log says why it did not happen."""
    try:
        async with asyncio.timeout(180):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        text = (await asyncio.to_thread(log.read_text))[-4000:]
        raise AssertionError(f"{what} did not happen\n{text}") from None


@pytest.fixture
def dead() -> Iterator[tuple[WandbServer, LangfuseServer]]:
    """Both, which refuse everything until told otherwise."""
    with wandb_server() as wandb, langfuse_server() as langfuse:
        wandb.refuses = langfuse.refuses = True
        yield wandb, langfuse


def tracked(**trackers: dict[str, object]) -> spec_pb2.JobSpec:
    return small_job(STEPS, tracking=ParseDict(trackers, spec_pb2.TrackingSpec()))


async def test_s3_s28_s32_s45_who_was_dead_in_mid_job_is_told_afterwards_and_without_a_key_is_off(
    client: Client, dead: tuple[WandbServer, LangfuseServer], tmp_path: Path
) -> None:
    wandb, langfuse = dead
    wandb.refuses = langfuse.refuses = False
    with openpipe_server() as openpipe:
        service = TrackingProcess(
            client.address,
            tmp_path,
            WANDB_API_KEY=KEY,
            WANDB_BASE_URL=wandb.url,
            LANGFUSE_PUBLIC_KEY="pk",
            LANGFUSE_SECRET_KEY="sk",
            LANGFUSE_HOST=langfuse.url,
            OPENPIPE_API_KEY="opk",
            OPENPIPE_BASE_URL=openpipe.url,
            # As whoever started it has, where it uses W&B itself.
            WANDB_SERVICE="3-1-unix-/a-service-of-somebody-else",
        )
        service.start()
        try:
            job = await client.create(tracked(wandb={}, langfuse={}, openpipe={}, mlflow={}))
            await until(lambda: job.id in wandb.runs, "a run", service.log)
            await until(lambda: bool(langfuse.named("episode_")), "an episode", service.log)
            wandb.refuses = langfuse.refuses = True
            # The job is whole whatever they do.
            await client.succeeded(job.id)
            service.kill()
            wandb.refuses = langfuse.refuses = False
            service.start()

            def has_all() -> bool:
                return (
                    bool(langfuse.named("training_session_"))
                    and wandb.run(job.id).summary.get("podium_finished") is True
                    and any(_metadata(each).get("podium_ended") for each in openpipe.reports)
                )

            await until(has_all, "the whole job at all three", service.log)
            async with httpx.AsyncClient() as http:
                numbers = (await http.get(service.metrics)).text
            assert service.stop() == 0
        finally:
            service.kill()
    epochs = [row["epoch"] for row in wandb.run(job.id).rows() if "epoch" in row]
    assert epochs == list(range(1, STEPS + 1))
    episodes = STEPS * GROUPS * ATTEMPTS
    assert len(wandb.table(job.id, "episodes")["data"]) == episodes
    assert len(langfuse.named("episode_")) == episodes
    assert len(openpipe.reports) == episodes
    assert all("reward" in _metadata(each) for each in openpipe.reports)
    text = await asyncio.to_thread(service.log.read_text)
    off = "mlflow is off for this job: MLFLOW_TRACKING_URI not in the environment"
    # Once a start.
    assert text.count(off) == 2
    assert KEY not in text
    assert 'podium_tracking_failures_total{reason="no_secret",tracker="mlflow"}' in numbers
    assert job.id not in numbers


def _metadata(report: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = report["reqPayload"]["metadata"]
    return found


def processes_with(mark: str) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.long
async def test_a_client_that_hangs_is_killed_with_all_that_it_started(
    client: Client, dead: tuple[WandbServer, LangfuseServer], tmp_path: Path
) -> None:
    wandb, _ = dead
    wandb.refuses = False
    mark = f"TRACKING_TEST={tmp_path}"
    service = TrackingProcess(
        client.address,
        tmp_path,
        WANDB_API_KEY=KEY,
        WANDB_BASE_URL=wandb.url,
        TRACKING_TEST=str(tmp_path),
        PODIUM_TRACKING_STALL_SECONDS="10",
    )
    service.start()
    try:
        job = await client.create(tracked(wandb={}))
        await until(lambda: job.id in wandb.runs, "a run", service.log)
        # W&B's client tries for hours to end its run at a server that is away.
        wandb.refuses = True
        await client.succeeded(job.id)
        await until(lambda: "reason=stalled" in service.log.read_text(), "a stall", service.log)
        assert service.stop() == 0
        assert await asyncio.to_thread(processes_with, mark) == []
    finally:
        service.kill()
