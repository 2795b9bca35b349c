"""Which version the pool serves for a job, and that it does."""

from __future__ import annotations

import asyncio

from podium.core.errors import FailedPreconditionError
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2

from podium_controller.domain import job_states
from podium_controller.domain.ports import Inference, Ledger
from podium_controller.training.recovery import Recovery


class Serving:
    """Keeps the newest version of a job loaded."""

    def __init__(
        self,
        job_id: str,
        inference: Inference,
        ledger: Ledger,
        recovery: Recovery,
        weight_update: spec_pb2.WeightUpdate.ValueType = spec_pb2.WEIGHT_UPDATE_DRAIN,
    ) -> None:
        """`weight_update` says what becomes of generations that run when it is loaded."""
        self._job_id = job_id
        self._inference = inference
        self._ledger = ledger
        self._recovery = recovery
        self._weight_update = weight_update
        self._loading = asyncio.Lock()
        self.version = -1
        """The version that is to be served; -1 before the first."""
        self.served = -1
        """The newest one that the pool has said to serve; -1 before the first."""

    async def serve(self, version: int) -> None:
        """Returns when the pool serves the version."""
        self.version = version
        await self._recovery.run("inference", self.reload)

    async def reload(self) -> bool:
        """Has the pool serve what it is to serve; True when it did not already.

        Raises:
            FailedPreconditionError: the pool has another base model, or serves
                a job that this controller cannot take it from.
        """
        try:
            response = await self._load()
        except FailedPreconditionError as error:
            if error.reason != "POOL_IN_USE" or not await self._make_room():
                raise
            response = await self._load()
        return not response.already_loaded

    async def check(self, sampled: int, served: int) -> None:
        """Has the pool load again when a group that began while it served `served` is older.

        What an earlier controller told the pool may have come after what this one did.
        """
        # Below 0 is another policy's.
        if 0 <= sampled < served:
            await self._recovery.run("inference", self.reload)

    async def _load(self) -> inference_pb.LoadPolicyResponse:
        # One after the other: a load that is overtaken would put the pool back, or find its version
        # deleted, which is done when the next one is served.
        async with self._loading:
            version = self.version
            response = await self._inference.load(self._job_id, version, self._weight_update)
            self.served = max(self.served, version)
            return response

    async def _make_room(self) -> bool:
        """Unloads what jobs that do not run have left in a pool that holds one job."""
        others = {policy.job for policy in await self._inference.policies()}
        idle = [
            job
            for job in sorted(others - {"", "base", self._job_id})
            if await self._ledger.state_of(job) in job_states.ENDED | job_states.RESTING
        ]
        for job in idle:
            await self._inference.unload(job)
        return bool(idle)
