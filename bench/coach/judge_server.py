"""An OpenAI-compatible judge of several minds, one for each path."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_ATTEMPT = re.compile(
    r'^<attempt-(?P<nonce>[a-z]+) id="(?P<id>\d+)">\n(?P<text>.*?)\n</attempt-(?P=nonce)>',
    re.DOTALL | re.MULTILINE,
)
_REPLY = re.compile(r'"assistant":\s*"((?:[^"\\]|\\.)*)"')


def _fair(text: str, place: int) -> float:
    """Few letters and one word are better: what can be seen without knowing the answer."""
    replies = _REPLY.findall(text)
    reply = replies[-1] if replies else text
    return max(0.0, 1.0 - 0.25 * len(reply.split()[1:]) - 0.01 * len(reply))


MINDS: Mapping[str, Callable[[str, int], float]] = {
    "fair": _fair,
    "same": lambda text, place: 0.5,
    "first": lambda text, place: max(0.0, 0.9 - 0.1 * place + 0.02 * _fair(text, place)),
}
SILENT = "silent"
"""A fair mind of which the first group of every four gets a readable answer, and no other one.

All of a step's groups without one, three times in a row, would fail the job by themselves.
"""


class _Silence:
    """Which groups get no readable answer, in the order in which they come."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._lock = threading.Lock()

    def befalls(self, prompt: str) -> bool:
        """The same for the same group, however often the judge service asks."""
        with self._lock:
            return self._places.setdefault(prompt, len(self._places)) % 4 != 0


def _answer(mind: str, request: Mapping[str, Any], silence: _Silence) -> str:
    prompt = next(m["content"] for m in request["messages"] if m["role"] == "user")
    if mind == SILENT:
        if silence.befalls(prompt):
            return "I liked the second one best."
        mind = "fair"
    scores = [
        {
            "attempt_id": match["id"],
            "explanation": "as the rule says",
            "score": MINDS[mind](match["text"], place),
        }
        for place, match in enumerate(_ATTEMPT.finditer(prompt))
    ]
    return json.dumps({"scores": scores})


@contextmanager
def judge_server() -> Iterator[Callable[[str], str]]:
    """Serves on a free port of loopback until the block ends; yields the base URL of a mind."""
    silence = _Silence()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = _answer(self.path.split("/")[1], request, silence)
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": answer},
            }
            body = json.dumps(
                {
                    "id": "judged",
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
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield lambda mind: f"http://127.0.0.1:{server.server_address[1]}/{mind}/v1"
    finally:
        server.shutdown()
        server.server_close()
