"""A pool of merged weights or adapters whose engine samples when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from podium.core.errors import UnavailableError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.ports import Piece
from podium_inference.servicer import InferenceServicer

JOB = "job"
IN_FLIGHT = spec_pb2.WEIGHT_UPDATE_IN_FLIGHT


async def settled() -> None:
    """Until nothing is ready that does not wait for a test."""
    for _ in range(50):
        await asyncio.sleep(0)


class _Running:
    """A request; its tokens are the versions that sampled them."""

    def __init__(self, limit: int, *, merged: bool) -> None:
        self.limit = limit
        self.merged = merged
        self.tokens: list[int] = []
        self.pieces: asyncio.Queue[Piece] = asyncio.Queue()

    def sample(self, version: int) -> bool:
        """One token more; whether it was the last."""
        self.tokens.append(version)
        last = len(self.tokens) == self.limit
        self._tell([version], trajectory_pb2.FINISH_REASON_LENGTH if last else 0)
        return last

    def abort(self) -> None:
        self._tell([], trajectory_pb2.FINISH_REASON_ABORTED)

    def _tell(self, tokens: list[int], finish: int) -> None:
        piece = Piece(token_ids=tokens, logprobs=[-0.5] * len(tokens), finish_reason=finish)
        if finish and self.merged:
            piece.versions = [(len(list(run)), version) for version, run in groupby(self.tokens)]
        self.pieces.put_nowait(piece)


class SteppedEngine:
    """As vLLM's: a token each of all that run in a step; none while it is frozen."""

    max_model_len = 1000
    vocab_size = 1000

    def __init__(self) -> None:
        self.version = 0
        self.running: list[_Running] = []
        self.is_frozen = False
        self.adapters: list[str] = []
        self.fails: list[Exception] = []
        """What the next exchanges of weights fail with."""
        self.freezes = True
        self.while_freezing: Callable[[], object] = lambda: None
        self.merging: asyncio.Event | None = None
        """Exchanges wait for it, where it is there."""
        self.scoring = asyncio.Event()

    def step(self, times: int = 1) -> None:
        """Samples."""
        assert not self.is_frozen
        for _ in range(times):
            self.running = [each for each in self.running if not each.sample(self.version)]

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        mine = _Running(sampling.max_tokens, merged=adapter is None)
        self.running.append(mine)
        try:
            while True:
                piece = await mine.pieces.get()
                yield piece
                if piece.finish_reason:
                    return
        finally:
            if mine in self.running:
                self.running.remove(mine)

    async def score(
        self, token_ids: Sequence[int], request_id: str, adapter: object | None
    ) -> list[float]:
        await self.scoring.wait()
        return [-float(self.version)] * (len(token_ids) - 1)

    async def merge(self, weights: Path | None, version: int) -> None:
        assert self.is_frozen or not self.running
        if self.merging is not None:
            await self.merging.wait()
        if self.fails:
            self.version = -1
            raise self.fails.pop(0)
        self.version = version

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        if not self.freezes:
            raise UnavailableError("the engine cannot be stopped", reason="WEIGHTS_NOT_EXCHANGED")
        self.while_freezing()
        self.is_frozen = True
        try:
            yield
        finally:
            self.is_frozen = False

    async def drop(self) -> None:
        while self.running:
            self.running.pop().abort()

    async def add_adapter(self, name: str, folder: Path) -> object:
        self.adapters.append(name)
        return name

    async def remove_adapter(self, handle: object) -> None:
        self.adapters.remove(str(handle))


class SteppedPool:
    """The real pool and the real servicer over it; every version is there to be fetched."""

    def __init__(self, *, merged: bool = True) -> None:
        self.engine: Any = SteppedEngine()
        self.held: list[int] = []
        """Versions whose files are here."""
        nobody: Any = None
        self.pool = PolicyPool(
            self.engine, nobody, self, merged=merged, max_requests=100, load_timeout_s=60
        )
        self._servicer = InferenceServicer(
            self.engine, self.pool, nobody, nobody, nobody, nobody, pb.GetEngineResponse()
        )

    async def fetch(self, job: str, version: int, weights_of: Any) -> tuple[Path, AsyncExitStack]:
        """See `Fetcher`."""
        held = AsyncExitStack()
        self.held.append(version)
        held.callback(self.held.remove, version)
        return Path(f"/versions/{job}/{version}"), held

    async def load(
        self, version: int, update: spec_pb2.WeightUpdate.ValueType = IN_FLIGHT
    ) -> pb.LoadPolicyResponse:
        """LoadPolicy."""
        request = pb.LoadPolicyRequest(job=JOB, version=version, weight_update=update)
        return await self._servicer.LoadPolicy(request, nobody)

    def loading(
        self, version: int, update: spec_pb2.WeightUpdate.ValueType = IN_FLIGHT
    ) -> asyncio.Task[pb.LoadPolicyResponse]:
        """LoadPolicy, begun."""
        return asyncio.create_task(self.load(version, update))

    async def unload(self) -> None:
        """UnloadPolicy."""
        await self._servicer.UnloadPolicy(pb.UnloadPolicyRequest(job=JOB), nobody)

    async def asking(
        self, tokens: int = 10, *, version: int | None = None, job: str = JOB
    ) -> asyncio.Task[pb.Generation]:
        """Generate, begun."""
        policy = policy_pb2.PolicyRef(job=job, version=version)
        request = pb.GenerateRequest(policy=policy, prompt_token_ids=[1])
        request.sampling.max_tokens = tokens

        async def ask() -> pb.Generation:
            return (await self._servicer.Generate(request, nobody)).generation

        task = asyncio.create_task(ask())
        await settled()
        return task

    async def streaming(self, tokens: int) -> AsyncIterator[pb.Generation]:
        """StreamGenerate."""
        request = pb.StreamGenerateRequest(
            policy=policy_pb2.PolicyRef(job=JOB), prompt_token_ids=[1]
        )
        request.sampling.max_tokens = tokens
        async for response in self._servicer.StreamGenerate(request, nobody):
            yield response.delta

    def scoring(self) -> asyncio.Task[pb.ScoreTokensResponse]:
        """ScoreTokens, begun."""
        request = pb.ScoreTokensRequest(policy=policy_pb2.PolicyRef(job=JOB), token_ids=[1, 2])
        return asyncio.create_task(self._servicer.ScoreTokens(request, nobody))

    async def step(self, times: int = 1) -> None:
        """Samples, and has whoever waits for it read it."""
        self.engine.step(times)
        await settled()


nobody: Any = None


def runs(generation: pb.Generation) -> list[tuple[int, int]]:
    """An answer's versions: how many tokens, and which."""
    return [(run.tokens, run.weights_version) for run in generation.versions]
