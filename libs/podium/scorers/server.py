"""HTTP around a scorer's function: `POST /score`, as the judge service's README has it."""

from __future__ import annotations

import hmac
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from podium.scorers.workers import BusyError, ScorerWorkers

_MAX_REQUEST_BYTES = 256 * 1024 * 1024
_IDLE_SECONDS = 60.0


def scorer_server(
    host: str, port: int, workers: ScorerWorkers, key: str = ""
) -> ThreadingHTTPServer:
    """A server that listens, and serves once its `serve_forever` is called.

    Args:
        port: 0 for a free one.
        key: what callers must show as `Authorization: Bearer`; empty for nothing.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = _IDLE_SECONDS

        def do_GET(self) -> None:
            self._send(*((200, {}) if self.path == "/health" else _NOT_FOUND))

        def do_POST(self) -> None:
            shown = self.headers.get("authorization", "").encode()
            if key and not hmac.compare_digest(shown, f"Bearer {key}".encode()):
                self._refuse(401, "wrong or missing key")
                return
            length = self.headers.get("content-length", "")
            if not length.isascii() or not length.isdigit():
                self._refuse(411, "content-length is missing")
                return
            if int(length) > _MAX_REQUEST_BYTES:
                self._refuse(413, f"got {length} bytes; at most {_MAX_REQUEST_BYTES}")
                return
            content = self.rfile.read(int(length))
            if self.path != "/score":
                self._send(*_NOT_FOUND)
                return
            self._send(*_scored(workers, content))

        def _refuse(self, status: int, why: str) -> None:
            # What was not read would be taken for the next request.
            self.close_connection = True
            self._send(status, {"error": why})

        def _send(self, status: int, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            if status == 503:
                self.send_header("retry-after", "1")
            if self.close_connection:
                self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing of what went well."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    return server


_NOT_FOUND = (404, {"error": "there is POST /score, and GET /health"})


def _scored(workers: ScorerWorkers, content: bytes) -> tuple[int, dict[str, Any]]:
    try:
        group = json.loads(content)
        whole = isinstance(group["scenario"], dict) and isinstance(group["trajectories"], list)
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = False
    if not whole:
        return 400, {"error": "allowed is JSON with a mapping `scenario` and a list `trajectories`"}
    try:
        answer = workers.score(content)
    except BusyError:
        return 503, {"error": "every process is at work; --processes says how many there are"}
    return (422 if "error" in answer else 200), answer
