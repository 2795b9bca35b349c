"""A stub of the inference service: `python -m bench.rollout.stub_engine PORT LATENCY_SECONDS`.

It renders at once and samples the same words after a fixed time, however many ask.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.types.v1 import trajectory_pb2

REPLY = "I pass."
SAMPLED = tuple(range(1000, 1032))
CONTEXT_TOKENS = 24
"""Of each message."""
WINDOW = 1 << 20


def answered(request: pb.GenerateRequest) -> pb.GenerateResponse:
    """The tokens of the messages that are new, and what is sampled after them."""
    render = request.render
    fresh = [
        (len(message.content) + place) % 1000
        for message in render.messages[render.prefix_messages :]
        for place in range(CONTEXT_TOKENS)
    ]
    return pb.GenerateResponse(
        rendered=pb.RenderResponse(token_ids=[*render.prefix_ids, *fresh], max_model_len=WINDOW),
        generation=sampled_words(request.sampling.seed),
    )


def sampled_words(seed: int) -> pb.Generation:
    """The same words for every seed, with other log-probs."""
    return pb.Generation(
        token_ids=SAMPLED,
        # They tell one seed from another.
        logprobs=[-((seed + place) % 64 + 1) / 64 for place in range(len(SAMPLED))],
        text=REPLY,
        finish_reason=trajectory_pb2.FINISH_REASON_STOP,
        policy="bench",
        weights_version=1,
        request_id="stub",
    )


class StubEngine(pb_grpc.InferenceServiceServicer):
    """Generate alone."""

    def __init__(self, latency_s: float) -> None:
        self._latency = latency_s

    async def Generate(  # noqa: N802
        self, request: pb.GenerateRequest, _: Any
    ) -> pb.GenerateResponse:
        await asyncio.sleep(self._latency)
        return answered(request)


async def _serve(port: int, latency_s: float) -> None:
    # Bare, not the kit's: what it costs is taken from the process that is measured.
    # A service that rests while another is measured pings it all the same.
    server = grpc.aio.server(
        options=[("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000)]
    )
    pb_grpc.add_InferenceServiceServicer_to_server(
        StubEngine(latency_s),  # type: ignore[abstract]
        server,
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
