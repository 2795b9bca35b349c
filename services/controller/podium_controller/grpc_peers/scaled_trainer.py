"""A shared trainer over gRPC whose pod comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc
from podium.core.errors import UnavailableError
from podium.core.tasks import cancel_and_wait
from podium.kit.rpc.members import Resolve, resolve_host
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import trajectory_pb2

from podium_controller.domain.ports import SharedTrainer, TrainerState
from podium_controller.domain.waits import OnWait

Dial = Callable[[str], tuple[grpc.aio.Channel, SharedTrainer]]
"""A channel to `host:port`, and the trainer behind it."""

# Calls to a pod that is gone have failed by then, as nothing answers their pings.
_GRACE_SECONDS = 60.0


class ScaledGrpcTrainer:
    """See `ports.SharedTrainer`: its pod is dialled by its own address, once its name has one.

    gRPC looks a name that has no address up ever less often, down to every two minutes, and would
    find a pod that has started as much later. Whoever asks for its state looks it up anew.
    """

    def __init__(self, host: str, port: int, dial: Dial, resolve: Resolve = resolve_host) -> None:
        """Nothing is dialled yet. `host` is a name."""
        self._host = host
        self._port = port
        self._dial = dial
        self._resolve = resolve
        self._address = ""
        self._channel: grpc.aio.Channel | None = None
        self._trainer: SharedTrainer | None = None
        self._closing: dict[asyncio.Task[None], grpc.aio.Channel] = {}

    async def state(self) -> TrainerState:
        """See `ports.SharedTrainer`.

        Raises:
            UnavailableError: there is no pod that is ready, or it does not answer.
        """
        addresses = await self._resolve(self._host, self._port)
        if not addresses:
            raise _away("no pod of it is ready")
        # While a pod takes another's place the name may have both.
        if self._address not in addresses:
            self._leave()
            self._address = addresses[0]
            self._channel, self._trainer = self._dial(self._address)
        return await self._there().state()

    async def ready(self, on_wait: OnWait) -> bool:
        """See `ports.Trainer`."""
        return await self._there().ready(on_wait)

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        """See `ports.Trainer`."""
        return await self._there().open(request)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        """See `ports.Trainer`."""
        return await self._there().step(job_id, step, groups)

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        """See `ports.Trainer`."""
        return await self._there().save(request)

    async def save_state(self, job_id: str, step: int) -> None:
        """See `ports.Trainer`."""
        await self._there().save_state(job_id, step)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Trainer`."""
        await self._there().close(job_id, seconds)

    async def hang_up(self) -> None:
        """Closes every channel."""
        old = dict(self._closing)
        await cancel_and_wait(*old)
        for channel in (*old.values(), self._channel):
            if channel is not None:
                await channel.close()
        self._address, self._channel, self._trainer = "", None, None

    def _leave(self) -> None:
        if self._channel is not None:
            task = asyncio.create_task(self._channel.close(_GRACE_SECONDS))
            self._closing[task] = self._channel
            task.add_done_callback(self._closing.pop)

    def _there(self) -> SharedTrainer:
        if self._trainer is None:
            raise _away("no pod of it has answered yet")
        return self._trainer


def _away(why: str) -> UnavailableError:
    return UnavailableError(f"trainer cannot be reached: {why}", metadata={"peer": "trainer"})
