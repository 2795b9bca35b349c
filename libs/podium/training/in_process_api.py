"""OpenAI's chat completions over real HTTP on this machine, answered by a function."""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podium.core.errors import InvalidArgumentError
from podium.core.openai_messages import message_of, messages_of, to_openai, tools_of
from podium.core.openai_parts import no_words
from podium.core.rollout_keys import PREFIX, verified
from podium.inference.v1 import inference_service_pb2 as pb
from podium.kit.http_server import end_http_server
from podium.types.v1 import trajectory_pb2

Answer = str | Mapping[str, Any]

END = 256
"""The token that ends a turn; below it, a token is a byte."""
_CONTEXT = 131_072
_LOGPROB = -math.log(END + 1)


class InProcessApi:
    """Serves until `close`, on a thread of its own."""

    def __init__(
        self,
        answer: Callable[[list[dict[str, Any]], int], Answer],
        step_of: Callable[[str], int | None],
        keep: Callable[[str, pb.CapturedCall], None],
    ) -> None:
        """`step_of` a model, None for none; `keep(key, call)` is told of captured calls."""
        self._answer = answer
        self._step_of = step_of
        self._keep = keep
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body are two writes; Nagle would hold the second for 40 ms.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                api.serve(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Is silent."""

        class Server(ThreadingHTTPServer):
            # Rollouts connect together; past socketserver's 5 each would wait a second and more.
            request_queue_size = 1024

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """For OpenAI's client."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        """Stops. Idempotent."""
        end_http_server(self._server)

    def serve(self, http: BaseHTTPRequestHandler) -> None:
        """Answers one request."""
        body = http.rfile.read(int(http.headers.get("Content-Length", 0)))
        if http.path != "/v1/chat/completions":
            _send(http, 404, _error(f"there is no {http.path} here"))
            return
        try:
            fields = json.loads(body)
            name, _, version = str(fields["model"]).partition("@")
            messages = list(fields["messages"])
        except (ValueError, KeyError, TypeError) as error:
            _send(http, 400, _error(f"the request cannot be read: {error!r}"))
            return
        if wrong := no_words(fields):
            _send(http, 400, _error(str(InvalidArgumentError(violations=wrong)), wrong[0].field))
            return
        step = self._step_of(name)
        if step is None or version not in ("", str(step)):
            _send(http, 404, _error(f"the model {fields['model']!r} does not exist"))
            return
        answers = [
            _assistant(self._answer(messages, step)) for _ in range(int(fields.get("n") or 1))
        ]
        key = http.headers.get("Authorization", "").removeprefix("Bearer ")
        if key.startswith(PREFIX):
            request_id = uuid.uuid4().hex
            for message in answers:
                self._keep(verified(key, "") or key, _call(fields, message, name, step, request_id))
        if fields.get("stream"):
            _stream(http, _chunks(fields, answers))
        else:
            _send(http, 200, _completion(fields, answers))


def _assistant(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    return {"role": "assistant", "content": None, **answer}


def _call(
    fields: Mapping[str, Any], reply: Mapping[str, Any], name: str, step: int, request_id: str
) -> pb.CapturedCall:
    prompt: list[int] = []
    for message in fields["messages"]:
        prompt += [*f"<{message.get('role')}>".encode(), *_text(message), END]
    sampled = [*_text(reply), END]
    call = pb.CapturedCall(
        messages=messages_of(fields),
        tools=tools_of(fields),
        prompt_token_ids=[*prompt, *b"<assistant>"],
        generation=pb.Generation(
            token_ids=sampled,
            logprobs=[_LOGPROB] * len(sampled),
            text=message_of(reply).content,
            finish_reason=(
                trajectory_pb2.FINISH_REASON_TOOL_CALLS
                if reply.get("tool_calls")
                else trajectory_pb2.FINISH_REASON_STOP
            ),
            policy=name,
            weights_version=step,
            request_id=request_id,
        ),
        temperature=fields.get("temperature") or 1.0,
        reply=message_of(reply),
    )
    call.start_time.GetCurrentTime()
    call.end_time.GetCurrentTime()
    return call


def demonstrated(request: pb.RenderDemonstrationRequest) -> pb.RenderDemonstrationResponse:
    """A whole conversation in the tokens in which calls are captured."""
    trained = set(request.trained)
    tokens: list[int] = []
    spans: list[trajectory_pb2.SampledSpan] = []
    for at, message in enumerate(request.messages):
        plain = to_openai(message)
        tokens += f"<{plain['role']}>".encode()
        said = [*_said(message), END]
        if at in trained or (not trained and plain["role"] == "assistant"):
            spans.append(trajectory_pb2.SampledSpan(start=len(tokens), length=len(said)))
        tokens += said
    record = trajectory_pb2.TokenRecord(token_ids=tokens, spans=spans)
    whole = pb.Demonstration(tokens=record, messages=len(request.messages))
    return pb.RenderDemonstrationResponse(demonstrations=[whole], max_model_len=_CONTEXT)


def _text(message: Mapping[str, Any]) -> bytes:
    return _said(message_of(message))


def _said(plain: trajectory_pb2.Message) -> bytes:
    calls = [f"{call.name}({call.arguments_json})" for call in plain.tool_calls]
    return "\n".join([plain.content, *calls]).encode()


def _finish(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _completion(fields: Mapping[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    tokens = sum(len(_text(message)) + 1 for message in answers)
    return {
        **_head(fields, "chat.completion"),
        "choices": [
            {"index": index, "message": message, "finish_reason": _finish(message)}
            for index, message in enumerate(answers)
        ],
        "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
    }


def _chunks(fields: Mapping[str, Any], answers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    head = _head(fields, "chat.completion.chunk")
    for index, message in enumerate(answers):
        words = (message["content"] or "").split(" ")
        pieces = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
        for delta in [{"role": "assistant"}, *({"content": piece} for piece in pieces)]:
            yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        calls = [
            {"index": number, **call} for number, call in enumerate(message.get("tool_calls") or ())
        ]
        last = {"tool_calls": calls} if calls else {}
        finish = _finish(message)
        yield {**head, "choices": [{"index": index, "delta": last, "finish_reason": finish}]}


def _head(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": fields["model"],
    }


def _error(message: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param}}


def _send(http: BaseHTTPRequestHandler, status: int, body: Mapping[str, Any]) -> None:
    content = json.dumps(body).encode()
    http.send_response(status)
    http.send_header("Content-Type", "application/json")
    http.send_header("Content-Length", str(len(content)))
    http.end_headers()
    http.wfile.write(content)


def _stream(http: BaseHTTPRequestHandler, chunks: Iterator[Mapping[str, Any]]) -> None:
    http.send_response(200)
    http.send_header("Content-Type", "text/event-stream")
    http.send_header("Connection", "close")
    http.end_headers()
    for chunk in chunks:
        http.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
    http.wfile.write(b"data: [DONE]\n\n")
    http.close_connection = True
