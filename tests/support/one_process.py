"""The services of a job in one process, over real gRPC; the engine says what a function says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import policy_pb2, trajectory_pb2
from podium_inference.adapters.fetcher import RegistryFetcher
from podium_inference.domain.captures import Captures
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.ports import Piece
from support.controlled import Client, running_controller
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.rollout_service import rollout_service
from support.wild_services import END, wild_inference

Say = Callable[[Sequence[int], policy_pb2.SamplingParams], str]
"""A reply to a prompt, whose tokens are bytes."""
LOGPROB = -1.0


class SayingEngine:
    """Its weights say nothing, and its tokens are the bytes of what it says."""

    max_model_len = 200_000
    vocab_size = END + 1
    gpus = 0

    def __init__(self, say: Say) -> None:
        self._say = say

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        text = self._say(prompt, sampling)
        ids = [*text.encode(), END]
        finish = trajectory_pb2.FINISH_REASON_STOP
        yield Piece(token_ids=ids, logprobs=[LOGPROB] * len(ids), text=text, finish_reason=finish)

    async def check(self, weights: Path) -> None:
        """Takes any."""

    def spread(self, weights: Path) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def merge(self, weights: Path | None, version: int) -> None:
        """Says what it says, whatever the weights."""

    async def add_adapter(self, name: str, folder: Path) -> object:
        raise NotImplementedError("a merged pool has no adapters")

    async def remove_adapter(self, handle: object) -> None:
        raise NotImplementedError("a merged pool has no adapters")


@asynccontextmanager
async def services(
    fleet: Fleet,
    say: Say,
    name: str,
    *,
    call_format: str = "hermes",
    reasoning_parser: str = "",
    judge: str = "",
    poll_seconds: float = 0.1,
) -> AsyncIterator[Client]:
    """A client of the real controller over real inference and rollout services.

    The fleet's are the registry, the trainer and, unless it is given, the judge.
    """
    engine, registry = SayingEngine(say), fleet.client
    pool = PolicyPool(
        engine,
        registry,
        RegistryFetcher(
            registry,
            lambda job, version: registry.lease(job, version, name),
            engine.check,
            engine.spread,
            merged=True,
            base_digest="",
            folder=fleet.folder / f"policies-{name}",
        ),
        merged=True,
        max_requests=10_000,
        load_timeout_s=600.0,
    )
    description = inference_pb.GetEngineResponse(
        base_model=BASE_MODEL,
        max_model_len=engine.max_model_len,
        vocab_size=engine.vocab_size,
        weight_mode=inference_pb.WEIGHT_MODE_MERGED,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pool.close)
        inference = await stack.enter_async_context(
            wild_inference(
                engine,
                Captures(10, 10, 10.0),
                call_format,
                pool=pool,
                description=description,
                reasoning_parser=reasoning_parser,
            )
        )
        rollout = await stack.enter_async_context(rollout_service(inference))
        changes = {"inference_address": inference, "rollout_address": rollout}
        if judge:
            changes["judge_address"] = judge
        yield await stack.enter_async_context(
            running_controller(
                fleet, name, lease_seconds=600.0, poll_seconds=poll_seconds, **changes
            )
        )
