"""A local double of the Hugging Face hub: what `datasets` asks it to read a data set.

One repository at one commit, its files as they are. Over real HTTP, with what the real
hub answers to the same requests; the client is the real one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from podium.kit.http_server import end_http_server

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """The running server: its address, and what it was asked."""

    def __init__(self, port: int, name: str, files: Mapping[str, bytes]) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.name = name
        self.files = dict(files)
        self.requests: list[str] = []

    def answer(self, path: str) -> tuple[int, Any]:
        """Status, and JSON or a file's bytes."""
        api, resolve = f"/api/datasets/{self.name}", f"/datasets/{self.name}/resolve/"
        if path.startswith(resolve):
            _, _, file = path.removeprefix(resolve).partition("/")
            return (200, self.files[file]) if file in self.files else (404, {})
        if path == f"{api}/revision/{COMMIT}":
            return 200, self._about()
        if path.startswith(f"{api}/tree/"):
            _, _, folder = path.removeprefix(f"{api}/tree/").partition("/")
            return 200, self._tree(folder)
        return 404, {"error": "Repository not found"}

    def _about(self) -> dict[str, Any]:
        siblings = [{"rfilename": name} for name in self.files]
        return {
            "_id": "1",
            "id": self.name,
            "sha": COMMIT,
            "private": False,
            "gated": False,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "siblings": siblings,
        }

    def _entries(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for name, content in self.files.items():
            for at in (i for i, letter in enumerate(name) if letter == "/"):
                found[name[:at]] = {
                    "type": "directory",
                    "path": name[:at],
                    "oid": _oid(b""),
                    "size": 0,
                }
            found[name] = {"type": "file", "path": name, "oid": _oid(content), "size": len(content)}
        return list(found.values())

    def _tree(self, folder: str) -> list[dict[str, Any]]:
        start = f"{folder}/" if folder else ""
        inside = [e for e in self._entries() if e["path"].startswith(start)]
        return [e for e in inside if "/" not in e["path"].removeprefix(start)]


def _oid(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()


@contextmanager
def fake_hub(name: str, files: Mapping[str, bytes]) -> Iterator[FakeHub]:
    """Serves a data set on a free port of loopback until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _handle(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {self.path}")
            status, found = hub.answer(path)
            is_file = isinstance(found, bytes)
            content = found if is_file else json.dumps(found).encode()
            wanted = self.headers.get("range", "")
            size = len(content)
            if is_file and wanted.startswith("bytes="):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                content = content[int(first) : int(last) + 1 if last else None]
                status = 206
            self.send_response(status)
            if status == 206:
                end = int(first) + len(content) - 1
                self.send_header("content-range", f"bytes {first}-{end}/{size}")
            if is_file:
                self.send_header("etag", f'"{_oid(found)}"')
                self.send_header("accept-ranges", "bytes")
            if status == 404:
                code = "EntryNotFound" if "/resolve/" in path else "RepoNotFound"
                self.send_header("x-error-code", code)
            self.send_header("x-repo-commit", COMMIT)
            kind = "octet-stream" if is_file else "json"
            self.send_header("content-type", f"application/{kind}")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def do_GET(self) -> None:
            self._handle()

        def do_HEAD(self) -> None:
            self._handle()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub = FakeHub(server.server_address[1], name, files)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        end_http_server(server)
        thread.join()
