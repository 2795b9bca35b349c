"""The inference pools, and what each was last heard to serve."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from podium.core.errors import PodiumError
from podium.core.tasks import cancel_and_wait
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2

from podium_controller.domain.ports import Inference
from podium_controller.pools.fair_share import FairShare

logger = logging.getLogger(__name__)

# Within this an answer is not asked for again.
_FRESH_SECONDS = 30.0
# A pool that is down is still known for what it served, so long.
_REMEMBER_SECONDS = 3600.0
# Between two questions to a pool that does not answer, when nobody waits for it.
_RETRY_SECONDS = 5.0
_ASK_SECONDS = 5.0


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
        """Whether it has the job's base model."""
        return self.engine is not None and self.engine.base_model == spec.base_model

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


@dataclass
class _Heard:
    engine: inference_pb.GetEngineResponse | None = None
    answered_at: float = 0.0
    asked_at: float | None = None
    error: str = ""
    asking: asyncio.Task[None] | None = None


class Pools:
    """All pools of the installation. A pool that is down costs the others nothing."""

    def __init__(self, pools: Sequence[Pool], clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked yet."""
        self._pools = {pool.name: pool for pool in pools}
        self._heard = {pool.name: _Heard() for pool in pools}
        self._clock = clock

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
        stale = [pool for pool in self._pools.values() if not self._is_fresh(pool)]
        await asyncio.gather(*(asyncio.shield(self._asking(pool)) for pool in stale))
        return self.offers()

    def refresh(self, on_answer: Callable[[], None]) -> None:
        """Has pools asked in the background whose answer is not fresh; says when one came."""
        for pool in self._pools.values():
            heard = self._heard[pool.name]
            lately = heard.asked_at is not None and (
                self._clock() - heard.asked_at < _RETRY_SECONDS
            )
            if not lately and heard.asking is None and not self._is_fresh(pool):
                self._asking(pool).add_done_callback(lambda _: on_answer())

    async def close(self) -> None:
        """Ends questions that are still open."""
        await cancel_and_wait(*(h.asking for h in self._heard.values() if h.asking is not None))

    def _asking(self, pool: Pool) -> asyncio.Task[None]:
        heard = self._heard[pool.name]
        if heard.asking is None:
            heard.asking = asyncio.create_task(self._ask(pool, heard), name=f"ask-{pool.name}")
        return heard.asking

    async def _ask(self, pool: Pool, heard: _Heard) -> None:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                heard.engine = await pool.inference.engine()
            heard.error = ""
            heard.answered_at = self._clock()
        except TimeoutError:
            heard.error = f"it did not answer within {_ASK_SECONDS:g} seconds"
        except PodiumError as error:
            heard.error = error.message
        finally:
            heard.asked_at = self._clock()
            heard.asking = None
        if heard.error:
            logger.info("a pool does not answer", extra={"pool": pool.name, "error": heard.error})

    def _is_fresh(self, pool: Pool) -> bool:
        heard = self._heard[pool.name]
        if heard.engine is None or heard.error:
            return False
        return self._clock() - heard.answered_at < _FRESH_SECONDS

    def _offer(self, pool: Pool) -> Offer:
        heard = self._heard[pool.name]
        known = heard.engine is not None and (self._clock() - heard.answered_at < _REMEMBER_SECONDS)
        answers = heard.asked_at is not None and not heard.error
        return Offer(pool, heard.engine if known else None, answers, heard.error)


def served(offers: Iterable[Offer]) -> str:
    """What the pools serve, for people."""
    described = [
        f"{offer.pool.name!r} serves {offer.engine.base_model!r}"
        if offer.engine is not None
        else f"{offer.pool.name!r} does not answer ({offer.error})"
        for offer in offers
    ]
    return f"pool{'s' if len(described) > 1 else ''} {', '.join(described)}"
