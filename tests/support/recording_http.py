"""HTTP servers on loopback that record what a tracker's client sends, and may refuse or hang."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What is answered."""

    status: int = 200
    body: bytes = b"{}"
    kind: str = "application/json"


Handle = Callable[[Request], Answer]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        with self.server.lock:
            answer = self.server.handle(Request(self.command, self.path, headers, body))
        with suppress(OSError):
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

    do_GET = _answer  # noqa: N815
    do_POST = _answer  # noqa: N815
    do_PUT = _answer  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handle: Handle, port: int) -> None:
        self.handle = handle
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed says nothing worth reading."""


@contextmanager
def serving(handle: Handle, port: int = 0) -> Iterator[str]:
    """The server's URL inside the block; one request at a time reaches `handle`."""
    server = _Server(handle, port)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
