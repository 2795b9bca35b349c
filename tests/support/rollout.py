"""Test doubles of the policy, in process and over gRPC, and requests for them.

The double samples ids that its own encoding never gives, so a record in which
a sampled turn was rendered again cannot equal the one that is expected.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from podium.core.contract import apply_defaults
from podium.core.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from podium.core.tool_calls import reply_format
from podium.environments.serving.convert import struct
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import Server, ServerSettings
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2
from podium.types.v1 import trajectory_pb2 as types_pb
from podium_rollout.domain.seeds import derive

JOB = "guesser"
END = 256
SAMPLED = 300


def encode(messages: Sequence[types_pb.Message], tools: Sequence[types_pb.Tool] = ()) -> list[int]:
    """The double's chat template: bytes, ending where the assistant's turn begins."""
    names = "".join(f"[{tool.name}]" for tool in tools)
    text = names + "".join(f"<{message.role}>{message.content}\n" for message in messages)
    return list(f"{text}<{types_pb.ROLE_ASSISTANT}>".encode())


def sampled_ids(text: str) -> list[int]:
    """What the double samples to say a text."""
    return [*(SAMPLED + byte for byte in text.encode()), END]


def sampled_logprobs(text: str, turn_seed: int) -> list[float]:
    """Its log-probabilities: float32 exactly, another for each position and seed."""
    return [-((turn_seed + place) % 64 + 1) / 64 for place in range(len(sampled_ids(text)))]


@dataclass
class Call:
    """One Generate."""

    prompt: list[int]
    policy: policy_pb2.PolicyRef
    sampling: policy_pb2.SamplingParams


@dataclass
class PolicyDouble:
    """`podium_rollout.adapters.policy.Policy`; says what the script holds for a generation's seed.

    `hold` waits until it is cancelled or released, `die` is UNAVAILABLE, `break` INTERNAL;
    `die once` and `break once` the first time that the seed comes.
    """

    replies: Mapping[int, str] = field(default_factory=dict)
    otherwise: str = "4"
    window: int = 100_000
    """Tokens of prompt and answer."""
    rewrites: bool = False
    """Refuses to continue a history."""
    reasoning_parser: str = ""
    """The pool's."""
    versions: Mapping[int, int] = field(default_factory=dict)
    """By how many sampled turns the prompt holds; else 3."""
    calls: list[Call] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    held: int = 0
    aborted: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def render(self, request: pb.RenderRequest) -> pb.RenderResponse:
        if not request.prefix_ids:
            return self._rendered(encode(request.messages, request.tools), request)
        if self.rewrites:
            raise FailedPreconditionError("rewritten", reason="HISTORY_NOT_CONTINUABLE")
        suffix = encode(request.messages[request.prefix_messages :])
        return self._rendered([*request.prefix_ids, *suffix], request)

    def _rendered(self, ids: Sequence[int], request: pb.RenderRequest) -> pb.RenderResponse:
        text = request.tool_format == spec_pb2.TOOL_FORMAT_TEXT
        call_format = ("text" if text else "hermes") if request.tools else ""
        return pb.RenderResponse(
            token_ids=ids,
            call_format=reply_format(self.reasoning_parser, call_format),
            max_model_len=self.window,
        )

    async def generate(self, request: pb.GenerateRequest) -> pb.GenerateResponse:
        rendered = await self.render(request.render)
        fresh = rendered.token_ids[len(request.render.prefix_ids) :]
        prompt = [*request.prompt_token_ids, *fresh]
        room = self.window - len(prompt)
        if room < (request.sampling.max_tokens if request.require_room else 1):
            raise InvalidArgumentError("no room", reason="CONTEXT_LENGTH_EXCEEDED")
        sampling = policy_pb2.SamplingParams()
        sampling.CopyFrom(request.sampling)
        sampling.max_tokens = min(room, sampling.max_tokens)
        generation = await self.sample(prompt, request.policy, sampling)
        return pb.GenerateResponse(generation=generation, rendered=rendered)

    async def sample(
        self, prompt: list[int], policy: policy_pb2.PolicyRef, sampling: policy_pb2.SamplingParams
    ) -> pb.Generation:
        self.calls.append(Call(prompt, policy, sampling))
        if policy.job != JOB:
            raise NotFoundError(f"{policy.job} is not loaded", reason="POLICY_NOT_LOADED")
        said = text = self.replies.get(sampling.seed, self.otherwise)
        if text == "die":
            raise UnavailableError("inference cannot be reached", metadata={"peer": "inference"})
        if text in ("die once", "break once"):
            text = self.otherwise
            if sampling.seed not in self.lost:
                self.lost.add(sampling.seed)
                raise InternalError("broke") if "break" in said else UnavailableError("lost")
        if text == "break":
            raise InternalError("inference broke on it")
        if text == "hold":
            text = await self._hold()
        return pb.Generation(
            token_ids=sampled_ids(text),
            logprobs=sampled_logprobs(text, sampling.seed),
            text=text,
            finish_reason=types_pb.FINISH_REASON_STOP,
            policy=policy.job,
            weights_version=self.versions.get(list(prompt).count(END), 3),
            request_id=f"request-{len(self.calls)}",
        )

    async def _hold(self) -> str:
        self.held += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.held -= 1
        return self.otherwise


class InferenceDouble(pb_grpc.InferenceServiceServicer):
    """The same over real gRPC."""

    def __init__(self, policy: PolicyDouble) -> None:
        self.policy = policy

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        return await self.policy.generate(request)


@asynccontextmanager
async def serve_inference(policy: PolicyDouble, port: int = 0) -> AsyncIterator[str]:
    """The double's address while the block runs."""
    server = Server("inference", ServerSettings(port=port))
    server.add(
        pb_grpc.add_InferenceServiceServicer_to_server,
        InferenceDouble(policy),
        "podium.inference.v1.InferenceService",
    )
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)


def group_request(
    attempts: int = 1,
    *,
    options: Mapping[str, Any] | None = None,
    address: str = "",
    job: str = JOB,
    **episode: Any,
) -> rollout_pb.CollectGroupRequest:
    """Attempts at guessing 4, with the contract's defaults."""
    request = rollout_pb.CollectGroupRequest(
        group_id=f"{JOB}/s1/g0",
        job_id=JOB,
        step=1,
        environment=spec_pb2.EnvironmentSpec(
            name="guess", address=address, config=struct(options or {})
        ),
        scenario=types_pb.Scenario(id="digit-4", split="train", data=struct({"answer": 4})),
        attempts=attempts,
        policy=policy_pb2.PolicyRef(job=job, version=3),
        episode=spec_pb2.EpisodeSpec(**episode),
        seed=11,
    )
    apply_defaults(request.sampling)
    apply_defaults(request.episode)
    return request


def script(
    request: rollout_pb.CollectGroupRequest, lines: Mapping[int, Sequence[str]]
) -> dict[int, str]:
    """Replies of each attempt, turn for turn, by the seed of their generation."""
    return {
        derive(request.seed, f"{request.group_id}/t{attempt}", turn): text
        for attempt, texts in lines.items()
        for turn, text in enumerate(texts)
    }


async def _serve(port: int, replies: dict[int, str]) -> None:
    async with serve_inference(PolicyDouble(replies, otherwise="hold"), port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    # A process that a test can kill: port, and the script as JSON.
    asyncio.run(_serve(int(sys.argv[1]), {int(k): v for k, v in json.loads(sys.argv[2]).items()}))
