"""The trainer pools, what each was last heard to hold, and which jobs may train there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from podium.types.v1 import spec_pb2

from podium_controller.domain.ports import SharedTrainer, TrainerState
from podium_controller.pools.hearing import Hearing
from podium_controller.pools.time_share import TimeShare

_EXPERTS = "experts"


@dataclass(frozen=True)
class TrainerPool:
    """A trainer of one base model, which several LoRA jobs share, by its name in the settings."""

    name: str
    trainer: SharedTrainer
    base_model: str = ""
    """By the settings; empty for that of whoever comes first, until nobody is there."""
    max_jobs: int = 0
    """The most by the settings; 0 where they leave it to the trainer."""
    gpus: int = 0
    scales_to_zero: bool = False
    """Whether it is there only while jobs wait for it or train at it."""
    time: TimeShare = field(default_factory=TimeShare)


@dataclass(frozen=True)
class TrainerOffer:
    """What a trainer pool holds, as far as is known."""

    pool: TrainerPool
    state: TrainerState | None
    """None when it has not answered for too long, or never."""
    answers: bool
    """Whether it did when it was last asked."""
    error: str
    """Why it does not; empty of one that is still to be asked too."""

    @property
    def max_jobs(self) -> int:
        """How many jobs it takes at once; 0 while it is not known."""
        told = self.state.max_jobs if self.state is not None else 0
        return min(filter(None, (told, self.pool.max_jobs)), default=0)

    @property
    def is_pending(self) -> bool:
        """Whether it is still to be heard whether it answers."""
        return not self.answers and not self.error

    @property
    def is_away(self) -> bool:
        """Whether it was asked, and does not answer."""
        return not self.answers and bool(self.error)

    def may_hold(self, base_model: str) -> bool:
        """Whether it is for this base model, by the settings."""
        return self.pool.base_model in ("", base_model)


class TrainerPools:
    """All trainer pools of the installation."""

    def __init__(
        self, pools: Sequence[TrainerPool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Nothing is asked yet."""
        self._pools = {pool.name: pool for pool in pools}
        questions = {pool.name: pool.trainer.state for pool in pools}
        self._hearing = Hearing("trainer pool", questions, clock)

    def get(self, name: str) -> TrainerPool | None:
        """A pool by its name; None when there is none."""
        return self._pools.get(name)

    def offers(self) -> list[TrainerOffer]:
        """What each pool holds, by what is remembered."""
        found = []
        for pool in self._pools.values():
            heard = self._hearing.of(pool.name)
            answers, error = heard.answers, heard.error
            if pool.scales_to_zero and not heard.is_recent:
                # It comes and goes with its jobs: what it said to an earlier one is no answer.
                answers, error = False, ""
            found.append(TrainerOffer(pool, heard.said, answers, error))
        return found

    def refresh(self, on_answer: Callable[[], None]) -> None:
        """Has pools asked in the background whose answer is not fresh; says when one came."""
        self._hearing.refresh(on_answer)

    async def close(self) -> None:
        """Ends questions that are still open."""
        await self._hearing.close()


def obstacles(spec: spec_pb2.JobSpec) -> list[tuple[str, str, str]]:
    """Why a job cannot train at a pool: field below the specification, what it says, and allowed.

    Empty for one that can.
    """
    found = []
    training, trainer = spec.training, spec.trainer
    if training.trainable == spec_pb2.TRAINABLE_KIND_FULL:
        kind = spec_pb2.TrainableKind.Name(training.trainable)
        found.append(("training.trainable", kind, "TRAINABLE_KIND_LORA"))
    if _EXPERTS in training.lora.target_modules:
        found.append(("training.lora.target_modules", repr(_EXPERTS), "linear layers"))
    if trainer.nodes > 1:
        found.append(("trainer.nodes", str(trainer.nodes), "1"))
    if trainer.HasField("gpus_per_node"):
        found.append(("trainer.gpus_per_node", str(trainer.gpus_per_node), "none"))
    for name in ("queue", "priority_class"):
        if value := getattr(trainer, name):
            found.append((f"trainer.{name}", repr(value), "none"))
    return found


def wants_own(spec: spec_pb2.JobSpec) -> bool:
    """Whether a job that names no pool has a trainer of its own, whatever pools there are."""
    return spec.trainer.dedicated or bool(obstacles(spec))
