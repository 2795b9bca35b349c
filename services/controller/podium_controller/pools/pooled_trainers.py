"""Trainers of which some jobs share one, and the others have their own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from podium.core.errors import DeadlineExceededError, PodiumError, UnavailableError, Violation
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.ports import JobRecord, Trainer, Trainers
from podium_controller.domain.waits import TRAINER_POOL_STARTING, OnWait, Wait
from podium_controller.pools.trainer_pools import TrainerPool, TrainerPools

_ASK_SECONDS = 5.0
_RETRY_SECONDS = 5.0


class PooledTrainers:
    """See `ports.Trainers`: a pool's for the jobs that are placed there."""

    def __init__(self, own: Trainers, pools: TrainerPools) -> None:
        """`own` are those of the other jobs."""
        self._own = own
        self._pools = pools

    @property
    def own(self) -> int | None:
        """See `ports.Trainers`."""
        return self._own.own

    async def violations(self, spec: spec_pb2.TrainerSpec) -> list[Violation]:
        """See `ports.Trainers`."""
        return await self._own.violations(spec)

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """See `ports.Trainers`."""
        return self._own.gpus(spec)

    def of(self, job: JobRecord) -> Trainer:
        """See `ports.Trainers`. Whoever placed the job knows that its pool is there."""
        pool = self._pools.get(job.trainer_pool) if job.trainer_pool else None
        return self._own.of(job) if pool is None else PooledTrainer(job.id, pool)

    async def retain(self, job_ids: Collection[str]) -> None:
        """See `ports.Trainers`."""
        await self._own.retain(job_ids)


class PooledTrainer:
    """See `ports.Trainer`: one job's place at a trainer that others use too.

    The time of its calls is counted, by which a pool's time is divided.
    """

    def __init__(self, job_id: str, pool: TrainerPool) -> None:
        self._job_id = job_id
        self._pool = pool
        self._trainer = pool.trainer
        self._time = pool.time

    async def ready(self, on_wait: OnWait) -> bool:
        """See `ports.Trainer`.

        What is at an address is there, or is waited for as a lost peer. One that is there only
        while jobs want it is waited for as long as the cluster takes to start it.
        """
        told = ""
        while self._pool.scales_to_zero and (error := await self._silence()):
            if error != told:
                told = error
                text = f"the trainer pool {self._pool.name!r} starts, and does not answer yet"
                await on_wait(Wait(TRAINER_POOL_STARTING, f"{text}: {error}"))
            await asyncio.sleep(_RETRY_SECONDS)
        return False

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        """See `ports.Trainer`."""
        with self._time.call(self._job_id):
            return await self._trainer.open(request)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        """See `ports.Trainer`."""
        with self._time.call(self._job_id):
            return await self._trainer.step(job_id, step, groups)

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        """See `ports.Trainer`."""
        with self._time.call(self._job_id):
            return await self._trainer.save(request)

    async def save_state(self, job_id: str, step: int) -> None:
        """See `ports.Trainer`. Waiting for a store is no use of the trainer."""
        await self._trainer.save_state(job_id, step)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Trainer`. The other jobs stay."""
        await self._trainer.close(job_id, seconds)

    async def _silence(self) -> str:
        """Why it does not answer; empty where it does, if only that it refuses."""
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                await self._trainer.state()
        except TimeoutError:
            return f"it did not answer within {_ASK_SECONDS:g} seconds"
        except (UnavailableError, DeadlineExceededError) as error:
            return error.message
        except PodiumError:
            # Whoever opens it is told the same, and says so.
            return ""
        return ""


class NoTrainers:
    """See `ports.Trainers`: of an installation that has trainer pools alone."""

    own = 0

    async def violations(self, spec: spec_pb2.TrainerSpec) -> list[Violation]:
        """See `ports.Trainers`. That it has one at all is what is wrong: see `api.trainers`."""
        return []

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """See `ports.Trainers`."""
        return 0

    def of(self, job: JobRecord) -> Trainer:
        """See `ports.Trainers`.

        Raises:
            UnavailableError: always.
        """
        raise UnavailableError("this installation has trainer pools alone")

    async def retain(self, job_ids: Collection[str]) -> None:
        """See `ports.Trainers`. There are none."""
