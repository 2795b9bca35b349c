"""`podium checkpoint load`: an adapter goes into a vLLM server that somebody else runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from podium.cli.exits import Exit
from podium.registry.v1 import registry_service_pb2 as registry_pb2
from support.cli_user import Cli
from support.recording_http import Answer, Request, serving

MODELS = {"data": [{"id": "base", "parent": None}, {"id": "other", "parent": "base"}]}
FILES = {"adapter/adapter_config.json": b"{}", "state/optimizer.safetensors": b"x"}
KEY = "sk-of-the-server"


def error(status: int, message: str) -> Answer:
    """As vLLM writes its own."""
    body = {"error": {"message": message, "type": "x", "param": None, "code": status}}
    return Answer(status, json.dumps(body).encode())


class Server:
    """A vLLM server that answers a load as it is told, and keeps what it was asked."""

    def __init__(self, load: Answer, models: Answer | None = None) -> None:
        self.answers = {
            "/v1/models": models or Answer(200, json.dumps(MODELS).encode()),
            "/v1/load_lora_adapter": load,
        }
        self.asked: list[Request] = []

    def handle(self, request: Request) -> Answer:
        self.asked.append(request)
        return self.answers.get(request.path, Answer(404, b'{"detail":"Not Found"}'))

    @property
    def loaded(self) -> list[dict[str, Any]]:
        return [json.loads(each.body) for each in self.asked if each.method == "POST"]


@contextmanager
def vllm(load: Answer, models: Answer | None = None) -> Iterator[tuple[Server, str]]:
    server = Server(load, models)
    with serving(server.handle) as url:
        yield server, url


async def test_the_adapter_is_written_and_loaded_by_its_name(cli: Cli) -> None:
    cli.fake.registry.publish("w", 2, FILES).aliases.append("best")
    with vllm(Answer(200, b"Success: LoRA adapter 'w@2' added successfully.")) as (server, url):
        done = await cli("checkpoint", "load", "w@best", url, "out")
        assert (done.code, done.out) == (Exit.OK, "w@2\n"), done.err
        assert "serves w@2, beside base, from" in done.err
        seen = await cli(
            *("checkpoint", "load", "w@2", f"{url}/v1/", "again", "--name", "mine", "--replace"),
            *("--server-path", "/mnt/adapters/again", "--key-env", "THE_KEY"),
            THE_KEY=KEY,
        )
        assert seen.out == "mine\n", seen.err
    folder = cli.folder / "out"
    assert [path.name for path in folder.iterdir()] == ["adapter_config.json"]
    assert server.loaded == [
        {"lora_name": "w@2", "lora_path": str(folder.resolve())},
        {"lora_name": "mine", "lora_path": "/mnt/adapters/again", "load_inplace": True},
    ]
    assert [each.headers.get("authorization") for each in server.asked] == [
        *[None] * 2,
        *[f"Bearer {KEY}"] * 2,
    ]


@pytest.mark.parametrize(
    ("load", "code", "words"),
    [
        (
            Answer(404, b'{"detail":"Not Found"}'),
            Exit.CONFLICT,
            ("does not let adapters be loaded", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
        ),
        (
            error(404, "Loading lora w@2 failed: No adapter found for /x"),
            Exit.CONFLICT,
            ("No adapter found for /x", "--server-path"),
        ),
        (
            error(500, "Call to add_lora failed: LoRA rank 16 is greater than max_lora_rank 8."),
            Exit.CONFLICT,
            ("LoRA rank 16", "--max-lora-rank must be"),
        ),
        (
            error(400, "The lora adapter 'w@2' has already been loaded. If you want"),
            Exit.CONFLICT,
            ("HTTP 400", "--replace"),
        ),
        (Answer(401, b"{}"), Exit.AUTH, ("refuses the key", "--key-env")),
        (Answer(502, b"<html>" + b"x" * 9000), Exit.CONFLICT, ("HTTP 502", "<html>xxx")),
        (Answer(400, b'{"error": []}'), Exit.CONFLICT, ("HTTP 400",)),
    ],
    ids=["off", "other path", "rank", "name", "key", "a proxy", "odd"],
)
async def test_what_the_server_refuses_is_told_with_what_to_do(
    cli: Cli, load: Answer, code: Exit, words: tuple[str, ...]
) -> None:
    cli.fake.registry.publish("w", 2, FILES)
    with vllm(load) as (_, url):
        refused = await cli("checkpoint", "load", "w", url, "out")
    assert (refused.code, refused.out) == (code, "")
    assert all(each in refused.err for each in words), refused.err
    assert len(refused.err) < 1000


@pytest.mark.parametrize(
    ("models", "code", "words"),
    [
        (Answer(200, b"<html>"), Exit.FAILED, "no list of models"),
        (Answer(200, b'{"data": [{"name": 1}]}'), Exit.FAILED, "no list of models"),
        (Answer(404, b"{}"), Exit.FAILED, "answered 404"),
        (Answer(403, b"{}"), Exit.AUTH, "refuses the key"),
    ],
)
async def test_what_is_no_server_of_models_costs_no_download(
    cli: Cli, models: Answer, code: Exit, words: str
) -> None:
    cli.fake.registry.publish("w", 2, FILES)
    with vllm(Answer(), models) as (server, url):
        refused = await cli("checkpoint", "load", "w", url, "out")
    assert refused.code == code
    assert words in refused.err
    assert not (cli.folder / "out").exists()
    assert server.loaded == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("w", "host:8000", "out"), "'host:8000' is no address of a server"),
        (("w", "http://me:secret@host", "out"), "no address of a server"),
        (("w", "http://[x", "out"), "no address of a server"),
        (("w", "http://host:99999", "out"), "no address of a server"),
        (("w", "http://h", "out", "--key-env", "NOT_THERE"), "--key-env: NOT_THERE is not set"),
        (("w", "http://h", "out", "--server-path", "a/b"), "--server-path: got 'a/b'"),
    ],
)
async def test_what_is_asked_wrongly_is_a_usage_error(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    refused = await cli("checkpoint", "load", *arguments)
    assert refused.code == Exit.USAGE
    assert words in refused.err


async def test_a_server_that_is_away_and_a_whole_model_are_told(cli: Cli) -> None:
    version = cli.fake.registry.publish("w", 2, {"model/config.json": b"{}"})
    with vllm(Answer()) as (server, url):
        version.manifest.kind = registry_pb2.VERSION_KIND_FULL
        whole = await cli("checkpoint", "load", "w", url, "out")
        assert whole.code == Exit.CONFLICT
        assert "is a whole model and no adapter" in whole.err
        version.manifest.kind = registry_pb2.VERSION_KIND_ADAPTER
        (cli.folder / "full").mkdir()
        (cli.folder / "full" / "a").touch()
        taken = await cli("checkpoint", "load", "w", url, "full")
        assert "full is not empty" in taken.err
        assert server.loaded == []
    away = await cli("checkpoint", "load", "w", url, "out")
    assert away.code == Exit.UNREACHABLE
    assert "cannot be reached" in away.err
