"""`podium.inference.v1.InferenceService`: validates, calls the domain, maps the result."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import grpc
from podium.core.chat_templates import template_arguments
from podium.core.contract import apply_defaults
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.outside import clean
from podium.core.page_tokens import page_of
from podium.core.tool_calls import parse_reply
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.telemetry import attributes, traced, tracer
from podium.types.v1 import policy_pb2, spec_pb2
from podium.types.v1 import trajectory_pb2 as types_pb

from podium_inference.adapters.pool_peers import PoolPeers, take_everywhere
from podium_inference.domain import metrics
from podium_inference.domain.captures import Captures
from podium_inference.domain.demonstration import demonstrations
from podium_inference.domain.holders import Holders
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.ports import Engine
from podium_inference.domain.render import Renderer
from podium_inference.domain.served import Served
from podium_inference.domain.stamps import stamp
from podium_inference.domain.token_scores import sendable

_Context = grpc.aio.ServicerContext[Any, Any]
_tracer = tracer(__name__)


class InferenceServicer(pb_grpc.InferenceServiceServicer):
    """See the contract for what each method does and how it fails."""

    def __init__(
        self,
        engine: Engine,
        pool: PolicyPool,
        renderer: Renderer,
        captures: Captures,
        pool_peers: PoolPeers,
        holders: Holders,
        description: pb.GetEngineResponse,
        load: Callable[[], pb.EngineLoad] | None = None,
    ) -> None:
        """`description` is what GetEngine answers, and `load` what the engine says of its queue.

        Without the latter GetEngine does not tell it.
        """
        self._engine = engine
        self._pool = pool
        self._renderer = renderer
        self._captures = captures
        self._pool_peers = pool_peers
        self._holders = holders
        self._description = description
        self._said = load

    async def Generate(self, request: pb.GenerateRequest, context: _Context) -> pb.GenerateResponse:
        apply_defaults(request.sampling)
        prompt: Sequence[int] = request.prompt_token_ids
        rendered = None
        if request.HasField("render"):
            rendered = await self._render(request.render)
            fresh = rendered.token_ids[len(request.render.prefix_ids) :]
            prompt = [*prompt, *fresh]
        if request.require_room:
            self._check_room(prompt, request.sampling.max_tokens)
        pieces = self._generate(request.policy, prompt, request.sampling)
        return pb.GenerateResponse(generation=await _whole(pieces), rendered=rendered)

    async def ScoreTokens(
        self, request: pb.ScoreTokensRequest, context: _Context
    ) -> pb.ScoreTokensResponse:
        tokens = request.token_ids
        self._check_tokens(tokens, "token_ids")
        if len(tokens) < 2:
            text = "got 1 token; allowed are 2 or more: the first has nothing before it"
            raise InvalidArgumentError(violations=[Violation("token_ids", text)])
        version = request.policy.version if request.policy.HasField("version") else None
        outcome = "failed"
        try:
            # An answer has the weights of one version.
            async with self._pool.use(request.policy.job, version, moves=False) as served:
                found = await self._engine.score(tokens, uuid.uuid4().hex, served.adapter)
                logprobs = sendable(found)
            outcome = "ok"
        except asyncio.CancelledError:
            outcome = "aborted"
            raise
        finally:
            metrics.SCORINGS.labels(outcome).inc()
        metrics.TOKENS.labels("scored").inc(len(tokens))
        return pb.ScoreTokensResponse(
            logprobs=logprobs, policy=served.job, weights_version=served.version
        )

    async def StreamGenerate(
        self, request: pb.StreamGenerateRequest, context: _Context
    ) -> AsyncIterator[pb.StreamGenerateResponse]:
        pieces = self._generate(request.policy, request.prompt_token_ids, request.sampling)
        async with aclosing(pieces):
            async for piece in pieces:
                yield pb.StreamGenerateResponse(delta=piece)

    async def Chat(self, request: pb.ChatRequest, context: _Context) -> pb.ChatResponse:
        prompt, reply_format = await self._prompt(request)
        generation = await _whole(self._generate(request.policy, prompt, request.sampling))
        message = _message(generation, reply_format, request)
        return pb.ChatResponse(message=message, prompt_token_ids=prompt, generation=generation)

    async def StreamChat(
        self, request: pb.StreamChatRequest, context: _Context
    ) -> AsyncIterator[pb.StreamChatResponse]:
        prompt, reply_format = await self._prompt(request)
        whole = pb.Generation()
        async with aclosing(self._generate(request.policy, prompt, request.sampling)) as pieces:
            async for piece in pieces:
                _append(whole, piece)
                response = pb.StreamChatResponse(delta=piece)
                if piece.finish_reason:
                    response.message.CopyFrom(_message(whole, reply_format, request))
                yield response

    async def Render(self, request: pb.RenderRequest, context: _Context) -> pb.RenderResponse:
        return await self._render(request)

    async def _render(self, request: pb.RenderRequest) -> pb.RenderResponse:
        call_format = self._renderer.format_of(request.tools, request.tool_format)
        arguments = template_arguments(request.chat_template_kwargs, "chat_template_kwargs")
        if request.prefix_ids:
            ids = await asyncio.to_thread(
                self._renderer.following,
                request.messages,
                request.tools,
                request.prefix_ids,
                request.prefix_messages,
                call_format,
                arguments,
            )
        else:
            ids = await asyncio.to_thread(
                self._renderer.first, request.messages, request.tools, call_format, arguments
            )
        return pb.RenderResponse(
            token_ids=ids,
            call_format=self._renderer.reply_format(call_format, arguments),
            max_model_len=self._engine.max_model_len,
        )

    async def RenderDemonstration(
        self, request: pb.RenderDemonstrationRequest, context: _Context
    ) -> pb.RenderDemonstrationResponse:
        found = await asyncio.to_thread(
            demonstrations,
            self._renderer,
            request.messages,
            request.tools,
            request.trained,
            self._renderer.format_of(request.tools, request.tool_format),
            template_arguments(request.chat_template_kwargs, "chat_template_kwargs"),
        )
        return pb.RenderDemonstrationResponse(
            demonstrations=found, max_model_len=self._engine.max_model_len
        )

    async def GetEngine(
        self, request: pb.GetEngineRequest, context: _Context
    ) -> pb.GetEngineResponse:
        if self._said is None:
            return self._description
        answer = pb.GetEngineResponse(load=self._pool.requests.load(self._said()))
        answer.MergeFrom(self._description)
        return answer

    async def ListPolicies(
        self, request: pb.ListPoliciesRequest, context: _Context
    ) -> pb.ListPoliciesResponse:
        rows = [s for s in self._pool.served() if not request.job or s.job == request.job]
        page, token = page_of(rows, request.page_size or 100, request.page_token, [request.job])
        return pb.ListPoliciesResponse(policies=map(_loaded, page), next_page_token=token)

    async def LoadPolicy(
        self, request: pb.LoadPolicyRequest, context: _Context
    ) -> pb.LoadPolicyResponse:
        if not request.whole_pool:
            return await self._load(request)
        own, others = await asyncio.gather(
            self._load(request), self._pool_peers.load(request), return_exceptions=True
        )
        if isinstance(own, BaseException):
            raise own
        if isinstance(others, BaseException):
            raise others
        answers = [own, *others]
        return pb.LoadPolicyResponse(
            policy=own.policy,
            pause_seconds=max(answer.pause_seconds for answer in answers),
            already_loaded=all(answer.already_loaded for answer in answers),
        )

    async def _load(self, request: pb.LoadPolicyRequest) -> pb.LoadPolicyResponse:
        keep = request.keep_older if request.HasField("keep_older") else 1
        # A caller that gives up must not leave weights half exchanged.
        in_flight = request.weight_update == spec_pb2.WEIGHT_UPDATE_IN_FLIGHT
        served, pause, before = await asyncio.shield(
            self._pool.load(request.job, request.version, keep, in_flight=in_flight)
        )
        return pb.LoadPolicyResponse(
            policy=_loaded(served), pause_seconds=pause, already_loaded=before
        )

    async def UnloadPolicy(
        self, request: pb.UnloadPolicyRequest, context: _Context
    ) -> pb.UnloadPolicyResponse:
        version = request.version if request.HasField("version") else None
        await asyncio.shield(self._pool.unload(request.job, version))
        return pb.UnloadPolicyResponse()

    async def TakeCapture(
        self, request: pb.TakeCaptureRequest, context: _Context
    ) -> AsyncIterator[pb.TakeCaptureResponse]:
        if request.here_only:
            for kept in self._captures.take(request.key):
                yield pb.TakeCaptureResponse(call=pb.CapturedCall.FromString(kept))
            return
        for call in await take_everywhere(
            self._captures, self._pool_peers, self._holders, request.key
        ):
            yield pb.TakeCaptureResponse(call=call)

    async def NoteCapture(
        self, request: pb.NoteCaptureRequest, context: _Context
    ) -> pb.NoteCaptureResponse:
        if request.holder:
            self._holders.note(request.key, request.holder)
        return pb.NoteCaptureResponse(
            process=self._holders.process, holders=sorted(self._holders.of(request.key))
        )

    async def _prompt(
        self, request: pb.ChatRequest | pb.StreamChatRequest
    ) -> tuple[list[int], str]:
        """The prompt of a chat, and how its reply is to be read."""
        call_format = self._renderer.format_of(request.tools, spec_pb2.TOOL_FORMAT_AUTO)
        arguments = template_arguments(request.chat_template_kwargs, "chat_template_kwargs")
        prompt = await asyncio.to_thread(
            self._renderer.first, request.messages, request.tools, call_format, arguments
        )
        return prompt, self._renderer.reply_format(call_format, arguments)

    async def _generate(
        self,
        policy: policy_pb2.PolicyRef,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
    ) -> AsyncGenerator[pb.Generation, None]:
        apply_defaults(sampling)
        self._check_tokens(prompt, "prompt_token_ids")
        _check_schema(sampling.json_schema)
        version = policy.version if policy.HasField("version") else None
        request_id = uuid.uuid4().hex
        outcome = "aborted"
        with traced(_tracer, "generate") as span:
            span.set_attribute(attributes.GEN_AI_OPERATION_NAME, "chat")
            span.set_attribute(attributes.GEN_AI_USAGE_INPUT_TOKENS, len(prompt))
            try:
                async with self._pool.use(policy.job, version) as served:
                    model = served.model_name or "base"
                    span.set_attribute(attributes.GEN_AI_REQUEST_MODEL, model)
                    sampled, cached = 0, 0
                    pieces = self._engine.generate(prompt, sampling, request_id, served.adapter)
                    async with aclosing(pieces):
                        async for piece in pieces:
                            sampled += len(piece.token_ids)
                            cached = max(cached, piece.cached_prompt_tokens)
                            generation = pb.Generation(
                                token_ids=piece.token_ids,
                                logprobs=piece.logprobs,
                                text=clean(piece.text),
                                finish_reason=piece.finish_reason,  # type: ignore[arg-type]
                                policy=served.job,
                                weights_version=served.version,
                                request_id=request_id,
                                cached_prompt_tokens=cached,
                            )
                            stamp(generation, piece.versions)
                            yield generation
                outcome = "ok"
                span.set_attribute(attributes.GEN_AI_USAGE_CACHED_TOKENS, cached)
                span.set_attribute(attributes.GEN_AI_USAGE_OUTPUT_TOKENS, sampled)
                metrics.TOKENS.labels("sampled").inc(sampled)
                metrics.TOKENS.labels("cached").inc(cached)
                metrics.TOKENS.labels("prompt").inc(len(prompt))
            except Exception:
                outcome = "failed"
                raise
            finally:
                metrics.GENERATIONS.labels(outcome).inc()

    def _check_tokens(self, tokens: Sequence[int], field: str) -> None:
        if not tokens:
            raise InvalidArgumentError(violations=[Violation(field, "is empty")])
        last = self._engine.vocab_size - 1
        # A loop in Python takes milliseconds of every turn of a long episode.
        if (least := min(tokens)) < 0 or (greatest := max(tokens)) > last:
            wrong = least if least < 0 else greatest
            raise InvalidArgumentError(
                violations=[Violation(field, f"got id {wrong}; allowed are 0 to {last}")]
            )
        self._check_room(tokens, 1, field)

    def _check_room(
        self, tokens: Sequence[int], room: int, field: str = "prompt_token_ids"
    ) -> None:
        if len(tokens) + room > self._engine.max_model_len:
            beside = f" beside an answer of {room}" if room > 1 else ""
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        field,
                        f"got {len(tokens)} tokens{beside}; allowed are fewer than the context"
                        f" window's {self._engine.max_model_len}, which"
                        " PODIUM_INFERENCE_MAX_MODEL_LEN sets (podium up --max-model-len)",
                    )
                ],
                reason="CONTEXT_LENGTH_EXCEEDED",
            )


def _check_schema(text: str) -> None:
    if not text:
        return
    try:
        known = isinstance(json.loads(text), dict)
    except ValueError:
        known = False
    if not known:
        raise InvalidArgumentError(
            violations=[
                Violation("sampling.json_schema", f"got {text[:40]!r}; must be a JSON object")
            ]
        )


async def _whole(pieces: AsyncGenerator[pb.Generation, None]) -> pb.Generation:
    result = pb.Generation()
    async with aclosing(pieces):
        async for piece in pieces:
            _append(result, piece)
    return result


def _append(whole: pb.Generation, piece: pb.Generation) -> None:
    text = whole.text + piece.text
    whole.MergeFrom(piece)
    whole.text = text
    # The last piece knows it, also when it is 0, which is not merged.
    whole.weights_version = piece.weights_version


def _message(
    generation: pb.Generation, reply_format: str, request: pb.ChatRequest | pb.StreamChatRequest
) -> types_pb.Message:
    before = sum(len(message.tool_calls) for message in request.messages)
    message = parse_reply(generation.text, reply_format, before, request.tools)
    if message.tool_calls:
        generation.finish_reason = types_pb.FINISH_REASON_TOOL_CALLS
    return message


def _loaded(served: Served) -> pb.LoadedPolicy:
    result = pb.LoadedPolicy(
        job=served.job,
        version=served.version,
        model_name=served.model_name,
        running_requests=served.running,
    )
    result.load_time.FromNanoseconds(int(served.load_time * 1e9))
    return result
