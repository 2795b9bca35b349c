"""A policy, an environment and an engine at their worst, behind the real services over gRPC."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

from podium.environments import Environment, Message, Observation, Scenario, StepResult, Tool, user
from podium.environments.types import tool_result
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import Server, ServerSettings
from podium.types.v1 import policy_pb2, trajectory_pb2
from podium_inference.adapters.pool_peers import PoolPeers
from podium_inference.domain.captures import Captures
from podium_inference.domain.holders import Holders
from podium_inference.domain.ports import Piece
from podium_inference.domain.render import Renderer
from podium_inference.servicer import InferenceServicer
from support.wild_text import Wild

END = 256
TOOL = Tool("look", "Looks.", {"type": "object", "properties": {"q": {"type": "string"}}})


class WildError(Exception):
    """What the environment raises on purpose."""


class Echo(Environment):
    """Hands everything back that the policy said, decoded, and raises now and then with it."""

    name: ClassVar[str] = "echo"
    description: ClassVar[str] = "Says it again."
    splits: ClassVar[tuple[str, ...]] = ("train",)
    ends = 0.3
    """The share of steps that end the task."""

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario("one", {})]

    async def reset(self, scenario: Scenario, seed: int) -> Observation:
        self._wild = Wild(seed)
        return Observation([user(self._wild.text())], [TOOL], {"said": self._wild.text()})

    async def step(self, action: Message) -> StepResult:
        decoded = [_decoded(call.arguments_json) for call in action.tool_calls]
        words = json.dumps(decoded, ensure_ascii=False) + self._wild.text()
        if self._wild.chance(0.05):
            raise WildError(words)
        said = [
            tool_result(call, f"{call.name}: {words}")
            for call in action.tool_calls
            if self._wild.chance(0.98)
        ]
        seen = Observation(said or [user(words)], [TOOL], {"said": decoded, words[:9]: words})
        return StepResult(
            seen,
            reward=len(words) % 7,
            terminated=self._wild.chance(self.ends),
            metrics={words[:5]: 1.0},
            info={"result": words, "expected": {"keywords": decoded}},
        )


def _decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


class WildEngine:
    """Says what a wild source says; its tokens are the bytes of that."""

    max_model_len = 200_000
    vocab_size = END + 1
    gpus = 0

    def __init__(self, wild: Wild) -> None:
        self._wild = wild
        self.sampled: dict[str, list[int]] = {}
        """By the request's id."""

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        text = self._wild.reply()
        # What a tokenizer decodes is UTF-8, but may hold NUL, and escapes of anything.
        text = text.encode(errors="replace").decode()[:2_000]
        ids = [*text.encode(), END]
        self.sampled[request_id] = ids
        finish = trajectory_pb2.FINISH_REASON_STOP
        yield Piece(token_ids=ids, logprobs=[-1.0] * len(ids), text=text, finish_reason=finish)


class _Tokenizer:
    """Bytes, and a chat template that takes calls apart as most do."""

    eos_token = "<end>"
    eos_token_id = END
    chat_template = "its own"
    added_tokens_decoder: ClassVar[dict[int, Any]] = {}

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        text = json.dumps(options["tools"] or [], ensure_ascii=False)
        for message in conversation:
            calls = [call["function"] for call in message.get("tool_calls", ())]
            written = json.dumps(calls, ensure_ascii=False) if calls else ""
            text += f"<{message['role']}>{message['content']}{written}<end>\n"
        return text + ("<assistant>" if options["add_generation_prompt"] else "")

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(text.encode())


class _OnePolicy:
    """The pool, as far as sampling needs it: whatever is asked for is served."""

    @asynccontextmanager
    async def use(self, job: str, version: int | None, *, moves: bool = True) -> AsyncIterator[Any]:
        yield SimpleNamespace(job=job, version=version or 0, adapter=None, model_name=job)


@asynccontextmanager
async def wild_inference(
    engine: WildEngine,
    captures: Captures,
    call_format: str,
    *,
    pool: Any = None,
    description: pb.GetEngineResponse | None = None,
    reasoning_parser: str = "",
) -> AsyncIterator[str]:
    """The real servicer and renderer on that engine; the address while the block runs.

    Without a `pool` whatever is asked for is served.
    """
    holders = Holders()
    renderer = Renderer(_Tokenizer(), call_format, reasoning_parser=reasoning_parser)
    server = Server("inference", ServerSettings())
    servicer = InferenceServicer(
        engine,
        pool or _OnePolicy(),
        renderer,
        captures,
        PoolPeers(None, "", holders),
        holders,
        description or pb.GetEngineResponse(),
    )
    server.add(
        pb_grpc.add_InferenceServiceServicer_to_server,
        servicer,
        "podium.inference.v1.InferenceService",
    )
    await server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(0)
