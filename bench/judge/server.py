"""An OpenAI-compatible judge that reads honestly, and records what it was sent."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EXPLANATION = "Found the right message with one search, but did not name the amount."
_SHOWN = re.compile(
    r'^<(?:trajectory|attempt-\w+) id="(?P<id>\d+)">\n(?P<text>.*?)\n</(?:trajectory|attempt-)',
    re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"answer (\d+)")


@dataclass
class Exchange:
    """One request and the text that answered it."""

    request: dict[str, Any]
    answer: str


@dataclass
class Recorder:
    """The running server."""

    base_url: str
    exchanges: list[Exchange] = field(default_factory=list)

    def take(self) -> list[Exchange]:
        """What came since the last time."""
        taken, self.exchanges = self.exchanges, []
        return taken


def _answer(request: dict[str, Any]) -> str:
    """A score for each attempt by the last `answer N` in it, under the id field asked for."""
    schema = json.dumps(request["response_format"])
    id_field = "trajectory_id" if "trajectory_id" in schema else "attempt_id"
    prompt = next(m["content"] for m in request["messages"] if m["role"] == "user")
    scores = []
    for match in _SHOWN.finditer(prompt):
        numbers = _NUMBER.findall(match["text"])
        score = int(numbers[-1]) / 20 if numbers else 0.0
        scores.append({id_field: match["id"], "explanation": EXPLANATION, "score": score})
    return json.dumps({"scores": scores})


@contextmanager
def recorder() -> Iterator[Recorder]:
    """Serves on a free port of loopback until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = _answer(request)
            running.exchanges.append(Exchange(request, answer))
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": answer},
            }
            body = json.dumps(
                {
                    "id": "recorded",
                    "object": "chat.completion",
                    "created": 0,
                    "model": request["model"],
                    "choices": [choice],
                }
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Recorder(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
