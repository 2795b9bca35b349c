"""A fleet: the doubles of the services that a controller drives, around a real registry."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from podium.core.errors import (
    InvalidArgumentError,
)
from podium.kit.registry_client import RegistryClient
from support.fleet_doubles import (
    BASE_MODEL,
    InferenceDouble,
    JudgeDouble,
    Member,
    Point,
    RolloutDouble,
)
from support.fleet_trainer import TrainerDouble
from support.folders import service_folder
from support.hold import Hold
from support.processes import RegistryProcess


class Fleet:
    """All five, and the places where a test may act."""

    def __init__(self, folder: Path, registry: RegistryProcess) -> None:
        self.folder = folder
        self.registry = registry
        self.inference = InferenceDouble(self)
        self.pools = {"default": self.inference}
        """By name."""
        self.rollout = RolloutDouble(self)
        self.rollouts = [self.rollout]
        """The replicas, which a controller finds behind one address."""
        self.judge = JudgeDouble(self)
        self.trainer = TrainerDouble(self)
        self.trainer_pools: dict[str, TrainerDouble] = {}
        """By name, besides the one above."""
        self.client = RegistryClient(self.registry.address)
        self.at: Point = _nothing
        self.step_seconds = 0.0
        self.trainer_reloads = False
        """Whether Open reads the registry even for the version that is open."""

    @property
    def doubles(self) -> tuple[Member, ...]:
        trainers = (self.trainer, *self.trainer_pools.values())
        return (*self.pools.values(), *self.rollouts, self.judge, *trainers)

    def pool(self, name: str) -> InferenceDouble:
        if name not in self.pools:
            raise InvalidArgumentError(f"there is no pool {name!r}")
        return self.pools[name]

    async def add_pool(
        self, name: str, base_model: str = BASE_MODEL, *, adapters: bool = False
    ) -> InferenceDouble:
        """A further pool, running; before the controller is."""
        pool = self.pools[name] = InferenceDouble(self, base_model, adapters=adapters)
        await pool.start()
        return pool

    async def add_trainer_pool(self, name: str, rooms: int) -> TrainerDouble:
        """A trainer that so many jobs share, running; before the controller is."""
        pool = self.trainer_pools[name] = TrainerDouble(self)
        pool.rooms = rooms
        await pool.start()
        return pool

    async def add_rollouts(self, count: int) -> list[RolloutDouble]:
        """Further replicas, running; before the controller is. Returns all."""
        added = [RolloutDouble(self) for _ in range(count)]
        self.rollouts += added
        for replica in added:
            await replica.start()
        return self.rollouts

    async def reached(self, point: str, about: str) -> None:
        await self.at(point, about)

    def hold(self, point: str, about: str = "") -> Hold:
        """Stops the first call that reaches the point."""
        hold = Hold(point, about)
        self.at = hold
        return hold

    async def weights_of(self, job: str, version: int) -> str:
        """The weights of a published version."""
        target = self.folder / f"pulled-{job}-{version}-{os.urandom(4).hex()}"
        await self.client.pull(job, version, target, only=("adapter/",), timeout_s=5.0)
        weights = (target / "adapter" / "adapter_model.safetensors").read_text()
        shutil.rmtree(target)
        return weights

    def variables(self) -> dict[str, str]:
        """What a controller needs to find them."""
        members: dict[str, Any] = {
            "registry": self.registry,
            "inference": self.inference,
            "rollout": self.rollout,
            "judge": self.judge,
            "trainer": self.trainer,
        }
        found = {
            f"PODIUM_CONTROLLER_{name.upper()}_ADDRESS": member.address
            for name, member in members.items()
        }
        if len(self.rollouts) > 1:
            # As the name of a Service does, it stands for every replica.
            replicas = ",".join(replica.address for replica in self.rollouts)
            found["PODIUM_CONTROLLER_ROLLOUT_ADDRESS"] = f"ipv4:{replicas}"
        if len(self.pools) > 1:
            addresses = [f"{name}={pool.address}" for name, pool in self.pools.items()]
            found["PODIUM_CONTROLLER_POOLS"] = ",".join(addresses)
        trainers = [f"{name}={pool.address}" for name, pool in self.trainer_pools.items()]
        found["PODIUM_CONTROLLER_TRAINER_POOLS"] = ",".join(trainers)
        return found

    def settings(self) -> dict[str, str]:
        """The same, as fields of its settings."""
        prefix = "PODIUM_CONTROLLER_"
        return {k.removeprefix(prefix).lower(): v for k, v in self.variables().items()}


@asynccontextmanager
async def fleet_of_doubles(registry: RegistryProcess) -> AsyncIterator[Fleet]:
    """A running fleet over a running registry, which may have served others before."""
    folder = service_folder("podium-fleet-")
    fleet = Fleet(folder, registry)
    try:
        for double in fleet.doubles:
            await double.start()
        yield fleet
    finally:
        await asyncio.gather(*(double.kill() for double in fleet.doubles))
        await fleet.judge.close()
        await fleet.client.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _nothing(point: str, about: str) -> None:
    return None
