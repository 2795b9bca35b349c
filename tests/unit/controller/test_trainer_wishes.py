"""What a job may ask of trainers, before it is queued."""

from __future__ import annotations

from typing import Any

import pytest
from podium.types.v1 import spec_pb2
from podium_controller.api.trainers import check_trainer
from podium_controller.domain.ports import TrainerState
from podium_controller.grpc_peers.peers import FixedTrainer
from podium_controller.pools.pooled_trainers import NoTrainers
from podium_controller.pools.trainer_pools import TrainerPool, TrainerPools


class Unasked:
    """A trainer that nobody needs to ask."""

    async def state(self) -> TrainerState:
        raise AssertionError("it was asked")


POOLS = TrainerPools([TrainerPool("small", Unasked(), "m"), TrainerPool("large", Unasked(), "n")])  # type: ignore[arg-type]
NONE = TrainerPools([])
OWN = FixedTrainer(None)  # type: ignore[arg-type]
FULL = {"trainable": spec_pb2.TRAINABLE_KIND_FULL}
EXPERTS = {"lora": spec_pb2.LoraSpec(target_modules=["experts"])}


def spec(training: Any = None, model: str = "m", **trainer: Any) -> spec_pb2.JobSpec:
    return spec_pb2.JobSpec(
        base_model=model,
        training=spec_pb2.TrainingSpec(**(training or {})),
        trainer=spec_pb2.TrainerSpec(**trainer),
    )


@pytest.mark.parametrize(
    ("job", "pools", "trainers", "told"),
    [
        (spec(), POOLS, OWN, []),
        (spec(pool="small"), POOLS, OWN, []),
        (spec(dedicated=True), POOLS, OWN, []),
        (spec(dedicated=True), NONE, OWN, []),
        (spec(FULL), POOLS, OWN, []),
        (spec(EXPERTS), POOLS, OWN, []),
        (
            spec(pool="smal"),
            POOLS,
            OWN,
            [("pool", "got 'smal'; allowed are large, small; did you mean 'small'?")],
        ),
        (spec(pool="zzz"), POOLS, OWN, [("pool", "got 'zzz'; allowed are large, small")]),
        (
            spec(pool="small"),
            NONE,
            OWN,
            [("pool", "got 'small'; allowed is none: this installation has no trainer pools")],
        ),
        (
            spec(pool="large"),
            POOLS,
            OWN,
            [("pool", "got 'large', which trains 'n'; for 'm' allowed is small")],
        ),
        (
            spec(pool="small", dedicated=True),
            POOLS,
            OWN,
            [("dedicated", "got true with pool 'small'; allowed is one of the two")],
        ),
        (
            spec(pool="small", nodes=2, queue="q"),
            POOLS,
            OWN,
            [
                ("nodes", "got 2 with trainer.pool 'small'; allowed at a trainer pool is 1"),
                ("queue", "got 'q' with trainer.pool 'small'; allowed at a trainer pool is none"),
            ],
        ),
        (
            spec(pool="small", gpus_per_node=1, priority_class="p"),
            POOLS,
            OWN,
            [
                ("gpus_per_node", "got 1 with trainer.pool 'small'"),
                ("priority_class", "got 'p' with trainer.pool 'small'"),
            ],
        ),
        # Of its own, and as it always was.
        (spec(nodes=2), POOLS, OWN, [("nodes", "got 2; allowed is 1: this installation has one")]),
        (spec(dedicated=True), POOLS, NoTrainers(), [("dedicated", "got true; allowed is false")]),
        (spec(nodes=2), POOLS, NoTrainers(), [("nodes", "got 2; allowed is 1: this installation")]),
        (spec(), POOLS, NoTrainers(), []),
    ],
)
async def test_what_is_wrong_is_told_by_field(
    job: spec_pb2.JobSpec, pools: TrainerPools, trainers: Any, told: list[tuple[str, str]]
) -> None:
    found = await check_trainer(job, trainers, pools)
    assert [each.field for each in found] == [f"job.spec.trainer.{field}" for field, _ in told]
    for each, (_, text) in zip(found, told, strict=True):
        assert each.description.startswith(text)


@pytest.mark.parametrize(
    ("job", "trainers", "field", "told"),
    [
        (
            spec(FULL, pool="small"),
            OWN,
            "training.trainable",
            "got TRAINABLE_KIND_FULL with trainer.pool 'small'; allowed at a trainer pool is"
            " TRAINABLE_KIND_LORA",
        ),
        (
            spec(EXPERTS, pool="small"),
            OWN,
            "training.lora.target_modules",
            "got 'experts' with trainer.pool 'small'; allowed at a trainer pool is linear layers",
        ),
        (
            spec(FULL),
            NoTrainers(),
            "training.trainable",
            "got TRAINABLE_KIND_FULL; allowed is TRAINABLE_KIND_LORA: this installation has"
            " trainer pools alone",
        ),
        (
            spec(model="o"),
            NoTrainers(),
            "base_model",
            "got 'o'; this installation has trainer pools alone, which train m, n",
        ),
    ],
)
async def test_what_cannot_train_there_is_told(
    job: spec_pb2.JobSpec, trainers: Any, field: str, told: str
) -> None:
    (found,) = await check_trainer(job, trainers, POOLS)
    assert (found.field, found.description) == (f"job.spec.{field}", told)
