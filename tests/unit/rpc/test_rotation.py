"""Tokens and certificates are exchanged while a server and its clients run."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import grpc
import pytest
from podium.core.errors import FailedPreconditionError, UnauthenticatedError, UnavailableError
from podium.kit.rpc import Server, ServerSettings, connect, connect_peer, rpc_errors
from podium.kit.rpc.tls import Tls
from podium.kit.rpc.watched_files import TokenFile
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from support.certificates import Authority
from support.rpc_doubles import add_doubles

OLD, NEW = "correct-horse", "battery-staple"


async def ask(channel: grpc.aio.Channel) -> None:
    with rpc_errors("registry"):
        await pb_grpc.RegistryServiceStub(channel).GetVersion(pb.GetVersionRequest(model="m"))


def put(path: Path, text: str | bytes) -> None:
    """As Kubernetes and careful people replace files: whole, by another one."""
    new = path.with_suffix(".new")
    new.write_bytes(text.encode() if isinstance(text, str) else text)
    os.replace(new, path)


@pytest.fixture
async def running(tmp_path: Path):
    """Starts servers with settings; they stop with the test."""
    servers: list[Server] = []

    async def start(**settings: Any) -> Server:
        server = Server("registry", ServerSettings(**settings))
        add_doubles(server)
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop(0)


async def test_a_token_is_exchanged_without_a_restart(running, tmp_path: Path) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    put(tokens, OLD)
    put(token, OLD)
    server = await running(auth_tokens_file=tokens)
    client = ServerSettings(token_file=token)
    address = f"127.0.0.1:{server.port}"
    async with connect_peer(client, address) as peer, connect(address, token=OLD) as late:
        await ask(peer)
        put(tokens, f"{OLD}\n{NEW}\n")
        await ask(peer)
        put(token, NEW)
        await ask(peer)
        await ask(late)
        put(tokens, NEW)
        await ask(peer)
        with pytest.raises(UnauthenticatedError):
            await ask(late)


async def test_a_file_that_says_nothing_leaves_what_it_said(
    running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    put(tokens, OLD)
    put(token, OLD)
    server = await running(auth_tokens_file=tokens)
    async with connect(f"127.0.0.1:{server.port}", token=TokenFile(token)) as channel:
        with caplog.at_level(logging.ERROR):
            put(tokens, "")
            token.unlink()
            await ask(channel)
            await ask(channel)
    told = [record.getMessage() for record in caplog.records if "stays in force" in record.message]
    assert len(told) == 2
    assert not any(OLD in message for message in told)


def test_a_token_file_that_is_empty_is_no_token(tmp_path: Path) -> None:
    put(tmp_path / "token", "\n")
    with pytest.raises(FailedPreconditionError, match="is empty"):
        ServerSettings(token_file=tmp_path / "token").peer_token()


@pytest.mark.parametrize("text", [f"{NEW}\n{OLD}\n", f"# mine\n{NEW}\n", "schlüssel", "a\x00b"])
async def test_a_token_that_no_call_can_carry_leaves_the_one_before(
    running, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    put(tokens, OLD)
    put(token, OLD)
    server = await running(auth_tokens_file=tokens)
    async with connect_peer(
        ServerSettings(token_file=token), f"127.0.0.1:{server.port}"
    ) as channel:
        put(token, text)
        await ask(channel)
    assert f"the token file {token} has " in caplog.text
    assert not any(secret in caplog.text for secret in (OLD, NEW, "schl"))


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \r\n\r\n"])
async def test_files_of_other_systems_hold_the_same_tokens(running, tmp_path: Path, end) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    put(tokens, f"\ufeff{OLD}{end or chr(10)}{NEW}{end}")
    server = await running(auth_tokens_file=tokens)
    for presented in (OLD, NEW):
        put(token, f"\ufeff{presented}{end}")
        async with connect(f"127.0.0.1:{server.port}", token=TokenFile(token)) as channel:
            await ask(channel)
    # As a variable made of such a file has it.
    async with connect(f"127.0.0.1:{server.port}", token=f"{NEW}{end}") as channel:
        await ask(channel)


async def test_a_token_given_by_hand_that_no_call_can_carry_is_told(running) -> None:
    server = await running()
    async with connect(f"127.0.0.1:{server.port}", token=f"{OLD}\n{NEW}") as channel:
        with pytest.raises(UnauthenticatedError, match="the bearer token has several lines"):
            await ask(channel)


def test_a_file_that_becomes_readable_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    put(token, OLD)
    held = TokenFile(token)
    readable = Path.read_text

    def forbidden(path: Path, **options: Any) -> str:
        if path == token:
            raise PermissionError(errno.EACCES, "Permission denied")
        return readable(path, **options)

    put(token, NEW)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", forbidden)
        assert [held(), held()] == [OLD, OLD]
    assert caplog.text.count("stays in force") == 1
    assert held() == NEW


def replace(files: dict[str, Path], by: dict[str, Path]) -> None:
    """One file after the other, so that there is a moment at which they do not fit."""
    for name in ("certificate", "key", "authorities"):
        put(files[name], by[name].read_bytes())


async def test_certificates_and_their_authority_are_exchanged_without_a_restart(
    running, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    names = ("localhost", "127.0.0.1")
    theirs, ours = old.issue(tmp_path / "server", *names), old.issue(tmp_path / "client", "client")
    server = await running(**{f"tls_{name}_file": path for name, path in theirs.items()})
    address = f"127.0.0.1:{server.port}"
    # Not renewed: what somebody holds who was forgotten.
    forgotten = Tls.load(**old.issue(tmp_path / "forgotten", "client"))
    async with connect(address, tls=Tls.load(**ours)) as channel:
        await ask(channel)
        replace(theirs, new.issue(tmp_path / "new-server", *names))
        replace(ours, new.issue(tmp_path / "new-client", "client"))
        await ask(channel)
    with pytest.raises(UnavailableError):
        async with connect(address, tls=forgotten) as channel:
            await ask(channel)


async def test_what_runs_when_a_certificate_is_exchanged_goes_on(running, tmp_path: Path) -> None:
    authority = Authority("here")
    theirs = authority.issue(tmp_path / "server", "127.0.0.1")
    ours = authority.issue(tmp_path / "client", "client")
    server = await running(**{f"tls_{name}_file": path for name, path in theirs.items()})
    async with connect(f"127.0.0.1:{server.port}", tls=Tls.load(**ours)) as channel:
        stub = pb_grpc.RegistryServiceStub(channel)
        watch = stub.WatchVersions(pb.WatchVersionsRequest())
        assert (await watch.read()).sequence == 1
        replace(ours, authority.issue(tmp_path / "renewed", "client"))
        await ask(channel)
        waiting = asyncio.create_task(watch.read())
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done, "the old channel was closed under a call"
        watch.cancel()
        await asyncio.wait([waiting])


async def test_half_a_renewal_changes_nothing(running, tmp_path: Path) -> None:
    authority = Authority("here")
    theirs = authority.issue(tmp_path / "server", "127.0.0.1")
    server = await running(**{f"tls_{name}_file": path for name, path in theirs.items()})
    put(theirs["key"], authority.issue(tmp_path / "other", "127.0.0.1")["key"].read_bytes())
    tls = Tls.load(**authority.issue(tmp_path / "client", "client"))
    async with connect(f"127.0.0.1:{server.port}", tls=tls) as channel:
        await ask(channel)


async def test_an_authority_that_is_cut_short_changes_nothing(running, tmp_path: Path) -> None:
    authority = Authority("here")
    theirs = authority.issue(tmp_path / "server", "127.0.0.1")
    ours = authority.issue(tmp_path / "client", "client")
    server = await running(**{f"tls_{name}_file": path for name, path in theirs.items()})
    async with connect(f"127.0.0.1:{server.port}", tls=Tls.load(**ours)) as channel:
        await ask(channel)
        for files in (theirs, ours):
            pem = files["authorities"].read_bytes()
            put(files["authorities"], pem[:200] + pem[240:])
        await ask(channel)
    # Nor for who comes now.
    late = Tls.load(**authority.issue(tmp_path / "late", "client"))
    async with connect(f"127.0.0.1:{server.port}", tls=late) as channel:
        await ask(channel)
