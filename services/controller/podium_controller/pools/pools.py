"""The inference pools, and what each was last heard to serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2

from podium_controller.domain.ports import Inference
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.hearing import Hearing


@dataclass(frozen=True)
class Pool:
    """An engine for one base model, by its name in the settings."""

    name: str
    inference: Inference
    fair_share: FairShare


@dataclass(frozen=True)
class Offer:
    """What a pool serves, as far as is known."""

    pool: Pool
    engine: inference_pb.GetEngineResponse | None
    """None when it has not answered for too long, or never."""
    answers: bool
    """Whether it did when it was last asked."""
    error: str
    """Why it does not; empty of one that has not been asked yet too."""

    def serves(self, spec: spec_pb2.JobSpec) -> bool:
        """Whether it has the job's base model, renders as it asks for and takes what it trains."""
        return (
            self.has_model(spec)
            and not self.cannot_render(spec)
            and not self.renders_otherwise(spec)
            and self.takes_weights(spec.training)
        )

    def has_model(self, spec: spec_pb2.JobSpec) -> bool:
        """Whether it has the job's base model."""
        return self.engine is not None and self.engine.base_model == spec.base_model

    def cannot_render(self, spec: spec_pb2.JobSpec) -> str:
        """Why it renders none of the job's conversations; empty where it does.

        A job that its client drives may bring tokens, which nobody renders here.
        """
        if self.engine is None or spec.HasField("client"):
            return ""
        return self.engine.unrenderable

    def renders_otherwise(self, spec: spec_pb2.JobSpec) -> dict[str, str]:
        """What it has in place of what the job asks for, by the fields of `Rendering`."""
        wanted = spec.rollout.episode.rendering
        own = self.engine.rendering if self.engine is not None else spec_pb2.Rendering()
        return {
            field.name: getattr(own, field.name)
            for field, value in wanted.ListFields()
            if getattr(own, field.name) != value
        }

    def takes_weights(self, training: spec_pb2.TrainingSpec) -> bool:
        """Whether it can serve what such a training makes."""
        if self.engine is None:
            return True
        if self.engine.untrainable:
            return False
        if not self.is_shared:
            return True
        if training.trainable == spec_pb2.TRAINABLE_KIND_FULL:
            return False
        most = self.engine.max_lora_rank
        return not most or training.lora.rank <= most

    def is_taken_by_teacher(self, spec: spec_pb2.JobSpec) -> bool:
        """Whether it is the pool of the job's teacher and has no room for the job beside it."""
        return self.pool.name == spec.distillation.pool and not self.is_shared

    def fits_context(self, spec: spec_pb2.JobSpec) -> bool:
        """Whether its context window holds a prompt beside the job's longest answer."""
        window = self.engine.max_model_len if self.engine is not None else 0
        return not window or spec.rollout.sampling.max_tokens < window

    @property
    def is_pending(self) -> bool:
        """Whether the first answer is still to come."""
        return not self.answers and not self.error

    @property
    def is_shared(self) -> bool:
        """Whether several jobs may use it at once."""
        return (
            self.engine is not None and self.engine.weight_mode == inference_pb.WEIGHT_MODE_ADAPTER
        )


class Pools:
    """All pools of the installation. A pool that is down costs the others nothing."""

    def __init__(self, pools: Sequence[Pool], clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked yet."""
        self._pools = {pool.name: pool for pool in pools}
        questions = {pool.name: pool.inference.engine for pool in pools}
        self._hearing = Hearing("pool", questions, clock)

    def get(self, name: str) -> Pool | None:
        """A pool by its name; without a name the only one. None when there is none, or many."""
        if not name and len(self._pools) == 1:
            return next(iter(self._pools.values()))
        return self._pools.get(name)

    def offers(self) -> list[Offer]:
        """What each pool serves, by what is remembered."""
        return [self._offer(pool) for pool in self._pools.values()]

    async def ask(self) -> list[Offer]:
        """The offers after every pool was asked whose answer is not fresh."""
        await self._hearing.ask()
        return self.offers()

    def refresh(self, on_answer: Callable[[], None]) -> None:
        """Has pools asked in the background whose answer is not fresh; says when one came."""
        self._hearing.refresh(on_answer)

    async def close(self) -> None:
        """Ends questions that are still open."""
        await self._hearing.close()

    def _offer(self, pool: Pool) -> Offer:
        heard = self._hearing.of(pool.name)
        return Offer(pool, heard.said, heard.answers, heard.error)


def served(offers: Iterable[Offer]) -> str:
    """What the pools serve, for people."""
    described = [
        f"{offer.pool.name!r} serves {offer.engine.base_model!r}"
        if offer.engine is not None
        else f"{offer.pool.name!r} does not answer ({offer.error})"
        for offer in offers
    ]
    return f"pool{'s' if len(described) > 1 else ''} {', '.join(described)}"
