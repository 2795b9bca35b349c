"""Deadlines of calls to a trainer that several jobs share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from podium.core.errors import DeadlineExceededError, UnavailableError
from podium.kit.rpc import Server, ServerSettings, connect
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.trainer.v1 import trainer_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2
from podium_controller.grpc_peers.trainers import GrpcTrainer, SharedGrpcTrainer
from podium_controller.settings import Settings

TURN_SECONDS = 5000.0


class Trainer(pb_grpc.TrainerServiceServicer):
    """A trainer that other jobs use, for as long as a test says."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.entered = asyncio.Event()
        self.turn = asyncio.Event()
        self.done = asyncio.Event()
        self.gone = asyncio.Event()
        self.left: float | None = None
        """Seconds to the deadline of a call when it came."""

    async def Open(self, request: Any, context: Any) -> pb.OpenResponse:
        await self._take(context)
        return pb.OpenResponse(step=3)

    async def Step(self, requests: Any, context: Any) -> pb.StepResponse:
        await self._take(context)
        return pb.StepResponse(step=4)

    async def _take(self, context: Any) -> None:
        self.left = context.time_remaining()
        self.entered.set()
        try:
            await self.turn.wait()
            await context.send_initial_metadata(())
            await self.done.wait()
        except asyncio.CancelledError:
            self.gone.set()
            raise


@asynccontextmanager
async def trainer_of(
    kind: type[GrpcTrainer], seconds: float
) -> AsyncIterator[tuple[Trainer, GrpcTrainer]]:
    server = Server("trainer", ServerSettings(port=0))
    double = Trainer(server)
    server.add(
        pb_grpc.add_TrainerServiceServicer_to_server, double, "podium.trainer.v1.TrainerService"
    )
    await server.start()
    settings = Settings(step_seconds=seconds, open_seconds=seconds, turn_seconds=TURN_SECONDS)
    try:
        async with connect(f"127.0.0.1:{server.port}") as channel:
            yield double, kind(channel, settings)
    finally:
        await server.stop(0)


CALLS = {
    "open": lambda trainer: trainer.open(
        pb.OpenRequest(job_id="a", base_model="m", training=spec_pb2.TrainingSpec(steps=1))
    ),
    "step": lambda trainer: trainer.step("a", 4, []),
}


@pytest.mark.parametrize("name", CALLS)
async def test_the_wait_for_a_turn_is_in_no_deadline(name: str) -> None:
    async with trainer_of(SharedGrpcTrainer, 60.0) as (double, trainer):
        double.turn.set()
        double.done.set()
        answer = await CALLS[name](trainer)
    assert answer.step == {"open": 3, "step": 4}[name]
    assert double.left is not None
    assert double.left > TURN_SECONDS - 1000


async def test_from_its_turn_on_a_step_has_its_own_deadline() -> None:
    async with trainer_of(SharedGrpcTrainer, 0.05) as (double, trainer):
        double.turn.set()
        with pytest.raises(DeadlineExceededError, match=r"0\.05 s for a step once it was"):
            await trainer.step("a", 4, [])
        async with asyncio.timeout(60):
            await double.gone.wait()


async def test_what_is_given_up_in_line_waits_no_longer() -> None:
    async with trainer_of(SharedGrpcTrainer, 60.0) as (double, trainer):
        task = asyncio.create_task(trainer.step("a", 4, []))
        await double.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(60):
            await double.gone.wait()


async def test_a_trainer_that_goes_while_a_job_is_in_line_is_told() -> None:
    async with trainer_of(SharedGrpcTrainer, 60.0) as (double, trainer):
        task = asyncio.create_task(trainer.step("a", 4, []))
        await double.entered.wait()
        await double.server.stop(0)
        with pytest.raises(UnavailableError):
            await task


async def test_a_trainer_of_ones_own_has_no_such_wait() -> None:
    async with trainer_of(GrpcTrainer, 60.0) as (double, trainer):
        double.turn.set()
        double.done.set()
        await trainer.step("a", 4, [])
    assert double.left is not None
    # gRPC rounds a timeout up when it sends it.
    assert double.left < 61
