"""Trainers over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
from podium.core.errors import DeadlineExceededError
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.trainer.v1 import trainer_service_pb2_grpc as trainer_grpc
from podium.types.v1 import trajectory_pb2

from podium_controller.domain.ports import TrainerState
from podium_controller.domain.waits import OnWait
from podium_controller.grpc_peers.errors import peer_errors
from podium_controller.settings import Settings


class GrpcTrainer:
    """See `ports.Trainer`: one that is the job's own, and waits for nobody else's calls."""

    def __init__(self, channel: grpc.aio.Channel, settings: Settings) -> None:
        self._stub: trainer_grpc.TrainerServiceAsyncStub = trainer_grpc.TrainerServiceStub(channel)
        self._settings = settings

    async def ready(self, on_wait: OnWait) -> bool:
        """See `ports.Trainer`. What is at an address is there, or is waited for as a lost peer."""
        return False

    async def state(self) -> TrainerState:
        """See `ports.SharedTrainer`."""
        with peer_errors("trainer"):
            told = await self._stub.GetTrainer(trainer_pb.GetTrainerRequest())
        return TrainerState(told.base_model, told.max_jobs, frozenset(told.open_jobs))

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        """See `ports.Trainer`."""
        with peer_errors("trainer"):
            return await self._opened(request)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        """See `ports.Trainer`."""

        async def messages() -> AsyncIterator[trainer_pb.StepRequest]:
            yield trainer_pb.StepRequest(header=trainer_pb.StepHeader(job_id=job_id, step=step))
            for group in groups:
                yield trainer_pb.StepRequest(group=group)

        with peer_errors("trainer"):
            return await self._stepped(messages())

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        """See `ports.Trainer`."""
        with peer_errors("trainer"):
            return await self._stub.Save(request, timeout=self._settings.publish_seconds)

    async def save_state(self, job_id: str, step: int) -> None:
        """See `ports.Trainer`."""
        request = trainer_pb.SaveStateRequest(job_id=job_id, step=step)
        with peer_errors("trainer"):
            await self._stub.SaveState(request, timeout=self._settings.publish_seconds)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Trainer`."""
        with peer_errors("trainer"):
            await self._stub.Close(trainer_pb.CloseRequest(job_id=job_id), timeout=seconds)

    async def _opened(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        return await self._stub.Open(request, timeout=self._settings.open_seconds)

    async def _stepped(
        self, messages: AsyncIterator[trainer_pb.StepRequest]
    ) -> trainer_pb.StepResponse:
        return await self._stub.Step(messages, timeout=self._settings.step_seconds)


class SharedGrpcTrainer(GrpcTrainer):
    """See `ports.SharedTrainer`: the wait for others' steps is in no call's deadline."""

    async def _opened(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        # When it begins is not known: gRPC gives a unary call's metadata with its answer.
        settings = self._settings
        return await self._stub.Open(request, timeout=settings.turn_seconds + settings.open_seconds)

    async def _stepped(
        self, messages: AsyncIterator[trainer_pb.StepRequest]
    ) -> trainer_pb.StepResponse:
        seconds = self._settings.step_seconds
        call = self._stub.Step(messages, timeout=self._settings.turn_seconds + seconds)
        try:
            # The trainer sends it when the job's turn begins.
            await call.initial_metadata()
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            raise DeadlineExceededError(
                f"trainer took more than {seconds:g} s for a step once it was the job's turn",
                metadata={"peer": "trainer"},
            ) from None
        finally:
            # A wait for its beginning that is given up ends no call by itself.
            call.cancel()
