"""Which pod a trainer that comes and goes is called at."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from podium.core.errors import UnavailableError
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium_controller.domain.ports import SharedTrainer, TrainerState
from podium_controller.grpc_peers.peers import connected_trainer_pools
from podium_controller.grpc_peers.scaled_trainer import ScaledGrpcTrainer
from podium_controller.grpc_peers.trainers import SharedGrpcTrainer
from podium_controller.settings import Settings


class Channel:
    """`grpc.aio.Channel`, as far as it is closed."""

    def __init__(self) -> None:
        self.closed: list[float | None] = []

    async def close(self, grace: float | None = None) -> None:
        self.closed.append(grace)


class Pod:
    """`ports.SharedTrainer`, as far as it is called here."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls: list[str] = []

    async def state(self) -> TrainerState:
        return TrainerState(self.address, 4, frozenset())

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        self.calls.append(f"close {job_id}")


class Name:
    """A name with the addresses that a test gives it, and what was dialled of them."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.dialled: dict[str, tuple[Channel, Pod]] = {}
        self.trainer = ScaledGrpcTrainer("trainers-a", 1, self.dial, self.resolve)

    async def resolve(self, host: str, port: int) -> list[str]:
        assert (host, port) == ("trainers-a", 1)
        return list(self.addresses)

    def dial(self, address: str) -> tuple[grpc.aio.Channel, SharedTrainer]:
        assert address not in self.dialled
        self.dialled[address] = (Channel(), Pod(address))
        made: Any = self.dialled[address]
        return made


async def test_each_pod_is_dialled_once_and_left_for_the_next_one() -> None:
    name = Name()
    with pytest.raises(UnavailableError, match="no pod of it is ready") as raised:
        await name.trainer.state()
    assert raised.value.metadata["peer"] == "trainer"
    name.addresses = ["10.0.0.1:1"]
    for _ in range(2):
        assert (await name.trainer.state()).base_model == "10.0.0.1:1"
    # Not ready for a moment: what it was asked before goes on.
    name.addresses = []
    with pytest.raises(UnavailableError):
        await name.trainer.state()
    await name.trainer.close("j")
    name.addresses = ["10.0.0.1:1", "10.0.0.2:1"]
    assert (await name.trainer.state()).base_model == "10.0.0.1:1"
    first, pod = name.dialled["10.0.0.1:1"]
    assert (first.closed, pod.calls) == ([], ["close j"])
    name.addresses = ["10.0.0.2:1"]
    assert (await name.trainer.state()).base_model == "10.0.0.2:1"
    await name.trainer.hang_up()
    assert (bool(first.closed), name.dialled["10.0.0.2:1"][0].closed) == (True, [None])


async def test_before_there_was_a_pod_every_call_says_that_it_is_away() -> None:
    trainer = Name().trainer
    calls = (
        trainer.open(pb.OpenRequest(job_id="j")),
        trainer.step("j", 1, []),
        trainer.save(pb.SaveRequest(job_id="j")),
        trainer.save_state("j", 1),
        trainer.close("j"),
    )
    for call in calls:
        with pytest.raises(UnavailableError, match="no pod of it has answered yet"):
            await call
    await trainer.hang_up()


async def test_a_pool_that_scales_is_looked_up_by_name_and_the_others_as_ever() -> None:
    told = (
        '{"a": {"address": "trainers-a:1", "scales_to_zero": true}, "b": "trainers-b:1",'
        ' "c": {"address": "10.0.0.1:1", "scales_to_zero": true}}'
    )
    async with connected_trainer_pools(Settings(trainer_pools=told)) as pools:  # type: ignore[arg-type]
        found = [offer.pool for offer in pools.offers()]
        assert [pool.scales_to_zero for pool in found] == [True, False, True]
        kinds = [type(pool.trainer) for pool in found]
        assert kinds == [ScaledGrpcTrainer, SharedGrpcTrainer, SharedGrpcTrainer]
