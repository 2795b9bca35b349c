"""A stub of an inference pool; its arguments are PORT MODEL MS MEDIAN KNEE.

It serves the adapters of all jobs at once. What it samples follows from the request's seed alone:
a cell of tic-tac-toe as text, and as many random tokens as a lognormal draw says. A token takes MS
milliseconds, and longer the more sequences are underway: twice as long at KNEE of them.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import grpc
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.types.v1 import trajectory_pb2

VOCABULARY = 4096
WINDOW = 4096
CONTEXT_TOKENS = 16
"""Of each message."""
SIGMA = 0.7
"""Of the logarithm of an answer's tokens."""
_LEAST, _MOST = 4, 400


class StubPool(pb_grpc.InferenceServiceServicer):
    """What a controller and a rollout service ask a pool that everything goes well for."""

    def __init__(self, model: str, token_s: float, median: float, knee: float) -> None:
        self._model = model
        self._token_s = token_s
        self._median = median
        self._knee = knee
        self._underway = 0
        self._versions: dict[str, int] = {}

    async def GetEngine(self, request: Any, _: Any) -> pb.GetEngineResponse:  # noqa: N802
        return pb.GetEngineResponse(
            base_model=self._model,
            max_model_len=WINDOW,
            weight_mode=pb.WEIGHT_MODE_ADAPTER,
            vocab_size=VOCABULARY,
        )

    async def ListPolicies(self, request: Any, _: Any) -> pb.ListPoliciesResponse:  # noqa: N802
        held = [pb.LoadedPolicy(job=job, version=each) for job, each in self._versions.items()]
        return pb.ListPoliciesResponse(policies=[pb.LoadedPolicy(), *held])

    async def LoadPolicy(self, request: Any, _: Any) -> pb.LoadPolicyResponse:  # noqa: N802
        self._versions[request.job] = request.version
        loaded = pb.LoadedPolicy(job=request.job, version=request.version)
        return pb.LoadPolicyResponse(policy=loaded)

    async def UnloadPolicy(self, request: Any, _: Any) -> pb.UnloadPolicyResponse:  # noqa: N802
        self._versions.pop(request.job, None)
        return pb.UnloadPolicyResponse()

    async def Generate(self, request: pb.GenerateRequest, _: Any) -> pb.GenerateResponse:  # noqa: N802
        version = self._versions[request.policy.job]
        generation = sampled(request.sampling.seed, self._median)
        generation.policy, generation.weights_version = request.policy.job, version
        self._underway += 1
        try:
            slower = 1 + (self._underway / self._knee if self._knee else 0)
            await asyncio.sleep(self._token_s * len(generation.token_ids) * slower)
        finally:
            self._underway -= 1
        return pb.GenerateResponse(rendered=rendered(request.render), generation=generation)


def rendered(render: pb.RenderRequest) -> pb.RenderResponse:
    """The tokens so far, and some of each message that is new."""
    fresh = [
        (len(message.content) * 7 + place) % VOCABULARY
        for message in render.messages[render.prefix_messages :]
        for place in range(CONTEXT_TOKENS)
    ]
    return pb.RenderResponse(token_ids=[*render.prefix_ids, *fresh], max_model_len=WINDOW)


def sampled(seed: int, median: float) -> pb.Generation:
    """The same for the same seed, whatever the weights are."""
    draw = random.Random(seed)
    count = round(median * draw.lognormvariate(0, SIGMA))
    count = min(_MOST, max(_LEAST, count))
    return pb.Generation(
        token_ids=[draw.randrange(VOCABULARY) for _ in range(count)],
        logprobs=[-draw.uniform(7, 9) for _ in range(count)],
        text=str(draw.randint(1, 9)),
        finish_reason=trajectory_pb2.FINISH_REASON_STOP,
        request_id="stub",
    )


async def _serve(port: int, model: str, token_ms: float, median: float, knee: float) -> None:
    server = grpc.aio.server(
        options=[("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000)]
    )
    pool = StubPool(model, token_ms / 1000, median, knee)  # type: ignore[abstract]
    pb_grpc.add_InferenceServiceServicer_to_server(pool, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:6])))
