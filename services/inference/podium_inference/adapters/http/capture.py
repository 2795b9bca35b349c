"""Captures calls of the OpenAI API on their way through: who asked what, what was sampled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from podium.core import anthropic_messages
from podium.core.openai_messages import messages_of, tools_of
from podium.core.outside import clean
from podium.core.reasoning_formats import thinks
from podium.core.tool_calls import parse_reply, reply_format
from podium.inference.v1 import inference_service_pb2 as pb
from podium.types.v1 import trajectory_pb2 as types_pb

from podium_inference.adapters.engine import versions_of
from podium_inference.domain.captures import Captures
from podium_inference.domain.ports import Run
from podium_inference.domain.stamps import stamp

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Announce = Callable[[str], Awaitable[None]]
"""Begins to tell the pool that there will be calls under a key; awaited, it is told."""
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_FINISH = {
    "stop": types_pb.FINISH_REASON_STOP,
    "length": types_pb.FINISH_REASON_LENGTH,
}


@dataclass
class CapturedRequest:
    """A request under a rollout's key; the body grows while the server reads it."""

    key: str
    repeated: bool = False
    """Whether its client says that it did not get the answer before."""
    path: str = ""
    """Of the route."""
    body: bytearray = field(default_factory=bytearray)

    def fields(self) -> Mapping[str, Any]:
        """The body's JSON object, in the form of OpenAI's APIs; empty for anything else."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(value, dict):
            return {}
        return anthropic_messages.as_chat(value) if self.path == anthropic_messages.PATH else value


_asked: ContextVar[CapturedRequest | None] = ContextVar("asked", default=None)


def asked() -> CapturedRequest | None:
    """The rollout's request in whose context this runs; None outside of one."""
    return _asked.get()


@contextmanager
def in_request(request: CapturedRequest) -> Iterator[None]:
    """Whatever serves a request in the block sees its rollout's key and body."""
    token = _asked.set(request)
    try:
        yield
    finally:
        _asked.reset(token)


def wanted(params: Any, fields: Mapping[str, Any]) -> Any:
    """vLLM's sampling parameters as a rollout's request is sampled by.

    With the sampled tokens' log-probs, if they were left out: what the client is answered does
    not change, for vLLM shows log-probs only to whoever asked for them in the request itself. And
    without vLLM's grammar of tool calls, under which nothing that is sampled could train. Clients
    ask for it by default, with `strict` tools, a `tool_choice` of `required`, or no
    `parallel_tool_calls`.
    """
    free = _of_tools_alone(params, fields)
    if params.logprobs is not None and not free:
        return params
    params = params.clone()
    if params.logprobs is None:
        params.logprobs = 0
    if free:
        params.structured_outputs = None
    return params


def _of_tools_alone(params: Any, fields: Mapping[str, Any]) -> bool:
    """Whether the answer is restricted by the tools that it may call, and by nothing else.

    A tool that is named is the request's own wish; it stays.
    """
    restricted = params.structured_outputs
    if restricted is None or not restricted.structural_tag:
        return False
    choice = fields.get("tool_choice")
    if isinstance(choice, Mapping):
        choice = choice.get("type")
    # Anthropic's `any` is OpenAI's `required`.
    if choice not in (None, "auto", "required", "any"):
        return False
    return not _has_format(fields)


def _has_format(fields: Mapping[str, Any]) -> bool:
    """Whether a request says what form its answer has: chat's, responses', Anthropic's, vLLM's."""
    formats = [fields.get("response_format"), fields.get("structured_outputs")]
    for name in ("text", "output_config"):
        holder = fields.get(name)
        formats.append(holder.get("format") if isinstance(holder, Mapping) else None)
    return any(isinstance(each, Mapping) and each.get("type") != "text" for each in formats)


def untrainable(params: Any) -> str:
    """Why what is sampled so must not train: its log-probs are not of the full softmax."""
    neutral = {
        "top_p": 1.0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_tokens": 0,
    }
    for name, value in neutral.items():
        if getattr(params, name) != value:
            return f"{name} is {getattr(params, name):g}"
    if params.top_k > 0:
        return f"top_k is {params.top_k}"
    if params.temperature == 0:
        return "temperature is 0"
    if params.output_kind.name == "CUMULATIVE":
        return "it is a beam of a search"
    for name in ("structured_outputs", "logit_bias", "allowed_token_ids", "bad_words"):
        if getattr(params, name):
            return f"{name} restricts the answer"
    return ""


@dataclass(frozen=True)
class How:
    """How a request is answered."""

    params: Any
    """vLLM's sampling parameters."""
    policy: tuple[str, int]
    """Job and version."""
    call_format: str
    """How the model writes calls: one of `tool_formats.FORMATS`."""
    reasoning_parser: str = ""
    """How it writes thoughts: one of `reasoning_formats.PARSERS`, or empty."""


@dataclass
class _Choice:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: str = ""
    versions: list[Run] = field(default_factory=list)


async def capture(
    outputs: AsyncGenerator[Any, None],
    request: CapturedRequest,
    how: How,
    captures: Captures,
    announce: Announce,
) -> AsyncGenerator[Any, None]:
    """Passes vLLM's outputs on; when they end, or nobody wants more, keeps the call.

    They end only when the pool is told: who gathers the calls next must learn that there is one.
    """
    told = announce(request.key)
    began = Timestamp()
    began.GetCurrentTime()
    prompt: list[int] = []
    choices: dict[int, _Choice] = {}
    request_id = ""

    def keep() -> None:
        fields = request.fields()
        for choice in choices.values():
            call = _call(fields, prompt, choice, how)
            call.generation.request_id = request_id
            call.repeated_request = request.repeated
            call.start_time.CopyFrom(began)
            call.end_time.GetCurrentTime()
            captures.add(request.key, call)

    try:
        async with aclosing(outputs):
            async for output in outputs:
                request_id = output.request_id
                prompt = prompt or list(output.prompt_token_ids or ())
                for part in output.outputs:
                    _append(choices.setdefault(part.index, _Choice()), part)
                yield output
        await told
    except (GeneratorExit, asyncio.CancelledError):
        keep()
        raise
    keep()


def _append(choice: _Choice, part: Any) -> None:
    """Deltas, or one output that is whole: the API asks the engine for nothing else."""
    ids = list(part.token_ids)
    choice.token_ids += ids
    if part.logprobs is not None:
        pairs = zip(part.logprobs, ids, strict=True)
        choice.logprobs += [chosen[token].logprob for chosen, token in pairs]
    choice.text += part.text
    choice.finish_reason = part.finish_reason or ""
    choice.versions = versions_of(part)


def _call(
    fields: Mapping[str, Any], prompt: list[int], choice: _Choice, how: How
) -> pb.CapturedCall:
    tools = tools_of(fields)
    text = clean(choice.text)
    told = fields.get("chat_template_kwargs")
    thinking = thinks(how.reasoning_parser, told if isinstance(told, Mapping) else {})
    parser = how.reasoning_parser if thinking else ""
    reply = parse_reply(text, reply_format(parser, ""))
    finish = _FINISH.get(choice.finish_reason, types_pb.FINISH_REASON_ABORTED)
    if tools:
        parsed = parse_reply(text, reply_format(parser, how.call_format), tools=tools)
        reply = parsed if parsed.tool_calls else reply
    if reply.tool_calls and finish == types_pb.FINISH_REASON_STOP:
        finish = types_pb.FINISH_REASON_TOOL_CALLS
    call = pb.CapturedCall(
        messages=messages_of(fields),
        tools=tools,
        prompt_token_ids=prompt,
        generation=pb.Generation(
            token_ids=choice.token_ids,
            logprobs=choice.logprobs,
            text=text,
            finish_reason=finish,
            policy=how.policy[0],
            weights_version=how.policy[1],
        ),
        temperature=how.params.temperature,
        untrainable=untrainable(how.params),
        reply=reply,
    )
    stamp(call.generation, choice.versions)
    return call
