"""A scripted OpenAI-compatible API on a real port, for the judge's tests.

A test double of the judge *model*, never of Podium: it plays models that answer
well, badly or not at all. Each request takes the next behaviour of `script`; the
last one stays.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podium.kit.http_server import end_http_server

_ATTEMPT = re.compile(
    r'<attempt-(?P<nonce>[a-z]+)(?: id="(?P<id>[^"]+)")?>\n(?P<text>.*?)\n</attempt-(?P=nonce)>',
    re.DOTALL,
)


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0


NEVER = 3600.0
"""A delay that no limit of a test waits for."""

Behaviour = Callable[[dict[str, Any]], Answer]
"""From a request's JSON body to the answer."""


def shown(request: dict[str, Any]) -> dict[str, str]:
    """The attempts of a judge prompt as a model sees them: id to text, in their order."""
    prompt = next(m["content"] for m in request["messages"] if m["role"] == "user")
    return {match["id"]: match["text"] for match in _ATTEMPT.finditer(prompt)}


def completion(text: str, *, finish_reason: str = "stop") -> Answer:
    """A chat completion that says `text`: 100 prompt tokens, 10 completion tokens."""
    body = {
        "id": "fake",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    }
    return Answer(body=json.dumps(body).encode())


def says(text: str) -> Behaviour:
    """Always the same words."""
    return lambda _: completion(text)


def fails(status: int, text: str = "{}", **headers: str) -> Behaviour:
    """An HTTP error."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: Answer(status, text.encode(), named)


def scores(score: Callable[[str], float], **edit: Any) -> Behaviour:
    """An honest judge: `score` of each attempt's text, by id, in the order shown.

    `edit(entries)` under the name `edit` may spoil the list of entries first.
    """

    def behave(request: dict[str, Any]) -> Answer:
        entries: list[dict[str, Any]] = [
            {"attempt_id": label, "explanation": f"saw {len(text)}", "score": score(text)}
            for label, text in shown(request).items()
        ]
        if "edit" in edit:
            entries = edit["edit"](entries)
        return completion(json.dumps({"scores": entries}))

    return behave


def grades(grade: Callable[[str, str], float]) -> Behaviour:
    """An honest judge with a rubric: `grade` of each criterion and the attempt's text."""

    def behave(request: dict[str, Any]) -> Answer:
        prompt = next(m["content"] for m in request["messages"] if m["role"] == "user")
        (match,) = _ATTEMPT.finditer(prompt)
        schema = request["response_format"]["json_schema"]["schema"]
        names = schema["properties"]["scores"]["items"]["properties"]["criterion"]["enum"]
        entries = [
            {"criterion": name, "explanation": f"{name}?", "score": grade(name, match["text"])}
            for name in names
        ]
        return completion(json.dumps({"scores": entries}))

    return behave


def truncated(behaviour: Behaviour, keep: float = 0.6) -> Behaviour:
    """The same words, cut off by the token limit."""

    def behave(request: dict[str, Any]) -> Answer:
        message = json.loads(behaviour(request).body)["choices"][0]["message"]["content"]
        return completion(message[: int(len(message) * keep)], finish_reason="length")

    return behave


def costing(prompt: int, completion: int, behaviour: Behaviour) -> Behaviour:
    """The same answer, with these tokens in the bill."""

    def behave(request: dict[str, Any]) -> Answer:
        body = json.loads(behaviour(request).body)
        body["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
        return Answer(body=json.dumps(body).encode())

    return behave


def slow(behaviour: Behaviour, seconds: float) -> Behaviour:
    """The same answer, late."""
    return lambda request: replace(behaviour(request), delay=seconds)


def refuses(parameter: str, behaviour: Behaviour) -> Behaviour:
    """Answers only requests without one of the parameters."""
    error = {"error": {"message": f"{parameter} is not supported by this model"}}

    def behave(request: dict[str, Any]) -> Answer:
        refused = parameter in request
        return Answer(400, json.dumps(error).encode()) if refused else behaviour(request)

    return behave


class FakeJudge:
    """The running server: `base_url`, what it was asked, and what it does next."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.script: list[Behaviour] = []
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.models: list[dict[str, Any]] = [{"id": "fake-judge", "object": "model"}]
        """What its API lists."""
        self.headers: dict[str, str] = {}
        """On its list of models."""
        self.paths: list[str] = []
        self.arrivals: list[float] = []
        """When each request came, in seconds of a steady clock."""
        self.refuses = 400
        """What a request about nothing, by which a key is tried, is answered."""
        self.tried: list[str | None] = []
        """With which keys that was asked."""
        self.when_never: Callable[[], None] = lambda: None
        """Called when a request came that is answered NEVER."""
        self._lock = threading.Lock()

    def then(self, *behaviours: Behaviour) -> None:
        """Plays `behaviours` one a request, and the last one from then on."""
        with self._lock:
            self.script = list(behaviours)
            self.requests.clear()
            self.authorizations.clear()
            self.paths.clear()
            self.arrivals.clear()

    def answer(self, request: dict[str, Any], authorization: str | None) -> Answer:
        """Takes the next behaviour."""
        with self._lock:
            self.requests.append(request)
            self.authorizations.append(authorization)
            self.arrivals.append(time.monotonic())
            behaviour = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return behaviour(request)


@contextmanager
def fake_judge() -> Iterator[FakeJudge]:
    """Serves on a free port of loopback until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _send(self, answer: Answer) -> None:
            if answer.delay == NEVER:
                judge.when_never()
            time.sleep(answer.delay)
            try:
                self.send_response(answer.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer.body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def do_GET(self) -> None:
            models = {"object": "list", "data": judge.models}
            self._send(Answer(body=json.dumps(models).encode(), headers=judge.headers))

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            request = json.loads(self.rfile.read(length))
            if not request or not request.get("messages", True):
                judge.tried.append(self.headers.get("authorization"))
                self._send(Answer(judge.refuses, b'{"error": "no messages"}'))
                return
            judge.paths.append(self.path)
            self._send(judge.answer(request, self.headers.get("authorization")))

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        # Many groups are judged at once.
        request_queue_size = 1024

        def handle_error(self, request: object, client_address: object) -> None:
            # A client that gave up on a slow answer is what some tests are about.
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    judge = FakeJudge(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield judge
    finally:
        end_http_server(server)
        thread.join()
