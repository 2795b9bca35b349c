"""What is remembered of pools, without any network."""

from __future__ import annotations

import asyncio

from podium.core.errors import UnavailableError
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pools import Pool, Pools, served
from podium_controller.pools.projects import Projects

SPEC = spec_pb2.JobSpec(base_model="m")


class Engine:
    """`ports.Inference`, as far as pools ask it."""

    def __init__(self, base_model: str = "m") -> None:
        self.base_model = base_model
        self.asked = 0
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def engine(self) -> inference_pb.GetEngineResponse:
        self.asked += 1
        await self.gate.wait()
        if self.away:
            raise UnavailableError("inference cannot be reached")
        return inference_pb.GetEngineResponse(base_model=self.base_model)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pools_of(clock: Clock, **engines: Engine) -> Pools:
    made = [Pool(name, engine, FairShare(name, 1, Projects())) for name, engine in engines.items()]  # type: ignore[arg-type]
    return Pools(made, clock)


async def test_an_answer_is_asked_for_once_in_a_while() -> None:
    clock, engine = Clock(), Engine()
    pools = pools_of(clock, a=engine)
    await asyncio.gather(*(pools.ask() for _ in range(5)))
    await pools.ask()
    assert engine.asked == 1
    clock.now += 31
    await pools.ask()
    assert engine.asked == 2


async def test_a_pool_that_is_down_is_remembered_for_a_while_and_no_longer() -> None:
    clock, engine = Clock(), Engine()
    pools = pools_of(clock, a=engine)
    await pools.ask()
    engine.away = True
    clock.now += 31
    (offer,) = await pools.ask()
    assert (offer.serves(SPEC), offer.answers) == (True, False)
    clock.now += 3600
    (offer,) = await pools.ask()
    assert (offer.serves(SPEC), offer.error) == (False, "inference cannot be reached")
    assert served([offer]) == "pool 'a' does not answer (inference cannot be reached)"
    engine.away = False
    (offer,) = await pools.ask()
    assert (offer.serves(SPEC), offer.answers) == (True, True)


async def test_one_that_hangs_keeps_nobody_from_what_is_known() -> None:
    clock, engine, slow = Clock(), Engine(), Engine("n")
    slow.gate.clear()
    pools = pools_of(clock, a=engine, b=slow)
    news = asyncio.Event()
    assert all(offer.is_pending for offer in pools.offers())
    pools.refresh(news.set)
    pools.refresh(news.set)
    await news.wait()
    known, pending = pools.offers()
    assert (known.serves(SPEC), known.answers) == (True, True)
    assert pending.is_pending
    assert (engine.asked, slow.asked) == (1, 1)
    await pools.close()


async def test_one_that_does_not_answer_is_asked_again_in_the_background_but_not_at_once() -> None:
    clock, engine = Clock(), Engine()
    engine.away = True
    pools = pools_of(clock, a=engine)
    await pools.ask()
    pools.refresh(lambda: None)
    assert engine.asked == 1
    clock.now += 5
    news = asyncio.Event()
    engine.away = False
    pools.refresh(news.set)
    await news.wait()
    assert pools.offers()[0].answers


def test_a_pool_has_its_name_unless_it_is_the_only_one() -> None:
    one = pools_of(Clock(), a=Engine())
    assert one.get("a") is one.get("")
    assert one.get("b") is None
    assert pools_of(Clock(), a=Engine(), b=Engine()).get("") is None
