"""A job and its trainer while a cluster places it: a real controller, a double of the placing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import OnWait, Wait
from podium_controller.grpc_peers.peers import FixedTrainer
from podium_controller.grpc_peers.trainers import GrpcTrainer
from support.controlled import Client, assert_every_step_once, small_job
from support.controlled_fixtures import client, fleet, registry
from support.fleet import Fleet

__all__ = ["client", "fleet", "registry"]

NO_ROOM = Wait("TRAINER_UNSCHEDULABLE", "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
ONE_LESS = Wait("TRAINER_UNSCHEDULABLE", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
STARTING = Wait("TRAINER_STARTING", "podium-trainer-0 starts")
BAD_SETTINGS = JobFailedError("PODIUM_TRAINER_PORT: got 'x'", reason="TRAINER_MISCONFIGURED")


class PlacingDouble:
    """See `ports.Trainer`: a real one over gRPC, which a test places when it likes."""

    def __init__(self, real: GrpcTrainer, waits: Sequence[Wait]) -> None:
        self.waits = list(waits)
        self.placed = asyncio.Event()
        self.hopeless: JobFailedError | None = None
        self.asked = 0
        self.closed: list[str] = []
        self._real = real

    async def ready(self, on_wait: OnWait) -> bool:
        self.asked += 1
        if not self.placed.is_set():
            for wait in self.waits:
                await on_wait(wait)
            await self.placed.wait()
        if self.hopeless is not None:
            raise self.hopeless
        return False

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        return await self._real.open(request)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        return await self._real.step(job_id, step, groups)

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        return await self._real.save(request)

    async def save_state(self, job_id: str, step: int) -> None:
        await self._real.save_state(job_id, step)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        self.closed.append(job_id)
        await self._real.close(job_id, seconds)


@pytest.fixture
def placing(monkeypatch: pytest.MonkeyPatch) -> list[PlacingDouble]:
    """The trainers that jobs were given, one a run."""
    made: list[PlacingDouble] = []

    def of(self: FixedTrainer, job: JobRecord) -> PlacingDouble:
        made.append(PlacingDouble(self._trainer, [STARTING, NO_ROOM, ONE_LESS]))
        return made[-1]

    monkeypatch.setattr(FixedTrainer, "of", of)
    return made


async def test_a_job_says_what_its_trainer_waits_for(
    fleet: Fleet, client: Client, placing: list[PlacingDouble]
) -> None:
    # Less than it waits: a place is not a lost service.
    job = await client.create(small_job(2, recovery_timeout_seconds=0.5))
    waiting = await client.until(job.id, lambda j: j.wait_message == ONE_LESS.message)
    assert (waiting.state, waiting.phase) == (pb.JOB_STATE_RUNNING, "wait")
    assert waiting.wait_reason == ONE_LESS.reason
    await asyncio.sleep(1.0)
    assert fleet.trainer.opens == []
    placing[0].placed.set()
    done = await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 2)
    assert (done.wait_reason, done.wait_message) == ("", "")
    told = [event for event in await client.events(job.id) if "trainer" in event.message]
    assert [event.type for event in told] == [pb.EVENT_TYPE_WARNING, pb.EVENT_TYPE_RECOVERY]
    assert NO_ROOM.message in told[0].message
    assert placing[0].closed == [job.id]


async def test_a_job_that_waits_can_be_paused_resumed_and_cancelled(
    fleet: Fleet, client: Client, placing: list[PlacingDouble]
) -> None:
    job = await client.create(small_job(1))
    await client.until(job.id, lambda j: j.wait_reason == NO_ROOM.reason)
    await client.pause(job.id)
    paused = await client.state(job.id, pb.JOB_STATE_PAUSED)
    assert (paused.wait_reason, paused.wait_message) == ("", "")
    assert placing[0].closed == [job.id]
    await client.resume(job.id)
    await client.until(job.id, lambda j: j.wait_reason == NO_ROOM.reason)
    await client.cancel(job.id)
    cancelled = await client.state(job.id, pb.JOB_STATE_CANCELLED)
    assert (cancelled.wait_reason, cancelled.wait_message) == ("", "")
    assert placing[-1].closed == [job.id]


async def test_a_trainer_that_there_will_never_be_fails_the_job(
    fleet: Fleet, client: Client, placing: list[PlacingDouble]
) -> None:
    job = await client.create(small_job(1))
    await client.until(job.id, lambda j: j.wait_reason == NO_ROOM.reason)
    placing[0].hopeless = BAD_SETTINGS
    placing[0].placed.set()
    failed = await client.state(job.id, pb.JOB_STATE_FAILED)
    assert failed.failure_reason == "TRAINER_MISCONFIGURED"
    assert failed.failure_message == BAD_SETTINGS.message
    assert placing[0].closed == [job.id]


async def test_a_lost_trainer_is_placed_again_before_it_is_opened(
    fleet: Fleet, client: Client, placing: list[PlacingDouble]
) -> None:
    hold = fleet.hold("step:begin", "2")
    job = await client.create(small_job(3))
    await client.until(job.id, lambda j: j.wait_reason == NO_ROOM.reason)
    trainer = placing[0]
    trainer.placed.set()
    await hold.reached()
    asked = trainer.asked
    trainer.placed.clear()
    await fleet.trainer.kill()
    hold.release()
    waiting = await client.until(job.id, lambda j: j.wait_reason == NO_ROOM.reason)
    assert waiting.phase == "recover"
    assert trainer.asked == asked + 1
    await fleet.trainer.start()
    trainer.placed.set()
    await client.succeeded(job.id)
    await assert_every_step_once(fleet, client, job.id, 3)


async def test_without_a_cluster_wishes_for_a_trainer_are_refused(client: Client) -> None:
    wishes = spec_pb2.TrainerSpec(nodes=2, gpus_per_node=8, queue="team-a", priority_class="high")
    with pytest.raises(InvalidArgumentError) as raised:
        await client.create(small_job(1, trainer=wishes))
    assert [each.field for each in raised.value.violations] == [
        f"job.spec.trainer.{name}" for name in ("nodes", "gpus_per_node", "queue", "priority_class")
    ]
    assert "got 2; allowed is 1" in raised.value.violations[0].description
    assert "one trainer for all jobs" in raised.value.violations[0].description


async def test_one_node_is_what_everybody_has(client: Client) -> None:
    spec = small_job(1, trainer=spec_pb2.TrainerSpec(nodes=1))
    job = await client.create(spec, validate_only=True)
    assert job.spec.trainer.nodes == 1
    assert (await client.create(small_job(1), validate_only=True)).spec.trainer.nodes == 1


def test_without_a_cluster_its_client_is_not_loaded() -> None:
    loaded = "import podium_controller.service, sys; sys.exit('kubernetes' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", loaded], env=os.environ, check=False)
    assert found.returncode == 0


def test_a_template_that_cannot_work_ends_the_controller_with_one_line(
    tmp_path: os.PathLike[str],
) -> None:
    variables = {
        "PODIUM_CONTROLLER_TRAINER_TEMPLATE": str(tmp_path / "trainer.yaml"),
        "PODIUM_CONTROLLER_DATA_DIR": str(tmp_path),
        **{f"PODIUM_CONTROLLER_{name}": "0" for name in ("PORT", "HEALTH_PORT", "METRICS_PORT")},
    }
    found = subprocess.run(
        [sys.executable, "-m", "podium_controller"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 1
    assert "trainer.yaml" in found.stderr
    assert "Traceback" not in found.stderr
