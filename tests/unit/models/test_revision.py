"""A revision of a hub's model, asked of a hub that runs here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

REVISIONS = {"main": "a" * 40, "a" * 40: "a" * 40, "v1": "b" * 40, "b" * 40: "b" * 40}


class FakeHub(BaseHTTPRequestHandler):
    """Stands for the Hugging Face hub: one model, whose config names its commit."""

    def do_HEAD(self) -> None:
        """As GET, without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """What a revision has, or a file of a commit."""
        parts = self.path.split("?")[0].strip("/").split("/")
        if "tree" in parts:
            commit = REVISIONS.get(parts[-1], "")
            self._answer([{"type": "file", "path": "config.json", "size": 54, "oid": "0"}], commit)
        elif parts[:2] == ["api", "models"]:
            commit = REVISIONS.get(parts[-1] if "revision" in parts else "main")
            files = [{"rfilename": "config.json"}]
            self._answer({"id": "org/model", "sha": commit, "siblings": files}, commit or "")
        elif "resolve" not in parts:
            self._answer({"path": self.path}, "")
        else:
            commit = parts[parts.index("resolve") + 1]
            self._answer({"commit": commit}, commit)

    def _answer(self, body: object, commit: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(200 if commit else 404)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{commit}"')
        self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def prepare(cache: Path, hub: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(cache / "hf"),
        "PODIUM_MODELS_DIR": str(cache),
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", "podium.models.prepare", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def commit_of(cache: Path) -> str:
    return str(json.loads((cache / "org" / "model" / "config.json").read_text())["commit"])


def test_a_revision_is_fetched_and_another_one_replaces_it(hub: str, tmp_path: Path) -> None:
    done = prepare(tmp_path, hub, "org/model", "--revision", "v1")
    assert done.returncode == 0, done.stderr
    assert commit_of(tmp_path) == "b" * 40
    done = prepare(tmp_path, hub, "org/model")
    assert done.returncode == 0, done.stderr
    assert commit_of(tmp_path) == "a" * 40


def test_a_revision_that_is_not_there_is_named(hub: str, tmp_path: Path) -> None:
    done = prepare(tmp_path, hub, "org/model", "--revision", "v9")
    assert done.returncode == 1
    assert "'org/model' at 'v9' could not be fetched" in done.stderr
    assert not (tmp_path / "org" / "model").exists()


def test_the_built_in_model_has_no_revisions(tmp_path: Path) -> None:
    done = prepare(tmp_path, "http://127.0.0.1:1", "smollm2-135m-instruct", "--revision", "v1")
    assert done.returncode == 1
    assert "revision" in done.stderr
