"""The model that an agent of verifiers calls: an OpenAI API whose answers the episode's steps give.

verifiers runs the episode and asks a model; our environments are asked by one.
So a request waits here until the next step brings the answer.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from podium.environments.types import Message, Observation, Tool, ToolCall

if TYPE_CHECKING:
    from aiohttp import web

_LARGEST_REQUEST = 64 * 1024 * 1024
_SESSION = "X-Session-ID"
# What a harness takes for the end of its budget and not for a failure: it stops and is scored.
_CUT = {
    "error": {
        "message": "This model's maximum context length is reached: the episode was cut.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


@dataclass
class _Request:
    body: Mapping[str, Any]
    session: str
    answer: asyncio.Future[Message | None]


@dataclass
class EpisodeModel:
    """What one episode asks of the model, turn by turn."""

    requests: asyncio.Queue[_Request] = field(default_factory=asyncio.Queue)
    session: str = ""
    """What verifiers calls the trace of the agent that asks."""
    _pending: _Request | None = None
    _known: list[Message] = field(default_factory=list)
    _cut: bool = False

    def observe(self, request: _Request) -> Observation:
        """What is new in a request since the last.

        Raises:
            RuntimeError: the conversation was not only continued, or is another one's.
        """
        self._pending = request
        if self.session and request.session != self.session:
            raise RuntimeError(
                "a second agent asked the model; give every other agent of the environment a "
                "model and client of its own in environment.config.env"
            )
        self.session = request.session
        known = len(self._known)
        messages = [_message(message) for message in request.body["messages"]]
        if messages[:known] != self._known:
            raise RuntimeError(
                "the harness rewrote the conversation; turn its compaction off, as what was "
                "sampled must stay as it was"
            )
        self._known, new = messages, messages[known:]
        # What the model said last is in the record already.
        if known and new and new[0].role == "assistant":
            new = new[1:]
        tools = [tool["function"] for tool in request.body.get("tools") or ()]
        return Observation(
            new,
            [
                Tool(tool["name"], tool.get("description") or "", tool.get("parameters") or {})
                for tool in tools
            ],
        )

    def answer(self, message: Message) -> None:
        """The model's answer to the last request."""
        if self._pending is not None and not self._pending.answer.done():
            self._pending.answer.set_result(message)

    def cut(self) -> None:
        """Refuses this and every further request as beyond the context length."""
        self._cut = True
        if self._pending is not None and not self._pending.answer.done():
            self._pending.answer.set_result(None)

    async def ask(self, body: Mapping[str, Any], session: str) -> Message | None:
        """The answer to a request; None when the episode was cut."""
        if self._cut:
            return None
        request = _Request(body, session, asyncio.get_running_loop().create_future())
        self.requests.put_nowait(request)
        return await request.answer


class ModelServer:
    """`/{key}/v1/chat/completions` for each conversation, on this machine only."""

    def __init__(self) -> None:
        """Nothing listens yet."""
        self._conversations: dict[str, EpisodeModel] = {}
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        """Binds a free port."""
        from aiohttp import web

        app = web.Application(client_max_size=_LARGEST_REQUEST)
        app.router.add_post("/{key}/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Frees the port."""
        for conversation in self._conversations.values():
            conversation.cut()
        if self._runner is not None:
            await self._runner.cleanup()

    def open(self) -> tuple[str, EpisodeModel]:
        """A new conversation and the base URL of its model; the URL is its secret too."""
        key = uuid.uuid4().hex
        self._conversations[key] = EpisodeModel()
        return f"http://127.0.0.1:{self._port}/{key}/v1", self._conversations[key]

    def close(self, url: str) -> None:
        """Forgets a conversation."""
        self._conversations.pop(url.split("/")[3]).cut()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        conversation = self._conversations.get(request.match_info["key"])
        if conversation is None:
            return web.json_response({"error": {"message": "no such episode"}}, status=404)
        body = await request.json()
        message = await conversation.ask(body, request.headers.get(_SESSION, ""))
        if message is None:
            return web.json_response(_CUT, status=400)
        if not body.get("stream"):
            return web.json_response(completion(message, body.get("model", "")))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks(message, body.get("model", "")):
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def completion(message: Message, model: str) -> dict[str, Any]:
    """A message as a `chat.completion`."""
    return _head("chat.completion", model) | {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": message.content} | _calls(message),
                "finish_reason": _finish_reason(message),
            }
        ],
        "usage": _USAGE,
    }


def chunks(message: Message, model: str) -> Sequence[dict[str, Any]]:
    """A message as the chunks of a stream."""
    head = _head("chat.completion.chunk", model)
    delta = {"role": "assistant", "content": message.content} | _calls(message, index=True)
    end = {"index": 0, "delta": {}, "finish_reason": _finish_reason(message)}
    return [
        head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        head | {"choices": [end]},
        head | {"choices": [], "usage": _USAGE},
    ]


# Tokens are counted where they are sampled.
_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def _head(kind: str, model: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


def _finish_reason(message: Message) -> str:
    return "tool_calls" if message.tool_calls else "stop"


def _calls(message: Message, *, index: bool = False) -> dict[str, Any]:
    if not message.tool_calls:
        return {}
    return {
        "tool_calls": [
            ({"index": place} if index else {})
            | {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_json},
            }
            for place, call in enumerate(message.tool_calls)
        ]
    }


def _message(message: Mapping[str, Any]) -> Message:
    return Message(
        message["role"],
        _text(message.get("content")),
        tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or ()
        ),
        tool_call_id=message.get("tool_call_id") or "",
        name=message.get("name") or "",
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        if any(part.get("type") != "text" for part in content):
            raise RuntimeError("the conversation has parts that are not text")
        return "\n".join(part["text"] for part in content)
    return content or ""
