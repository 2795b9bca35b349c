"""What is tried before a call by TLS is no stricter than gRPC, whatever Python it runs on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from podium.core.errors import UnavailableError
from podium.kit.rpc.tls import Tls
from podium.sdk.connection import handshake
from support.certificates import Authority

_default = ssl.create_default_context


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python is from 3.13 on."""

    def made(*, cadata: str) -> ssl.SSLContext:
        context = _default(cadata=cadata)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", made)


@asynccontextmanager
async def server(files: dict[str, Path]) -> AsyncIterator[str]:
    """The address of one that answers whoever trusts it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            writer.write(b"\0")
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["certificate"], files["key"])
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as serving:
        yield f"127.0.0.1:{serving.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("identified", [True, False])
async def test_a_certificate_that_grpc_takes_is_taken(tmp_path: Path, identified: bool) -> None:
    authority = Authority("ours", identified=identified)
    mine = Tls.load(**authority.issue(tmp_path / "client", "a-client"))
    async with server(authority.issue(tmp_path / "server", "127.0.0.1")) as address:
        await handshake.check(address, mine, "", "controller")


async def test_another_authoritys_certificate_is_not(tmp_path: Path) -> None:
    mine = Tls.load(**Authority("ours").issue(tmp_path / "client", "a-client"))
    async with server(Authority("theirs").issue(tmp_path / "server", "127.0.0.1")) as address:
        with pytest.raises(UnavailableError, match="not signed by the given authorities"):
            await handshake.check(address, mine, "", "controller")
