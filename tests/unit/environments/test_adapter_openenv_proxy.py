"""A server of OpenEnv where the environment names a proxy."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import InvalidArgumentError, UnavailableError
from podium.environments.adapters.openenv import OpenEnv
from podium.environments.types import Scenario

URL = "http://openenv.example.invalid:8000"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def refused() -> UnavailableError:
    with pytest.raises(UnavailableError) as caught:
        await OpenEnv({"url": URL}).reset(Scenario("1", {}), 1)
    return caught.value


async def test_a_proxy_without_a_scheme_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setenv("http_proxy", f"user:s3cret@127.0.0.1:{port}")
    async with listening:
        error = await refused()
    assert asked[0].startswith(b"CONNECT openenv.example.invalid:8000 ")
    assert "s3cret" not in str(error)


@pytest.mark.parametrize(
    "proxy",
    [
        "ftp://user:s3cret@127.0.0.1:9",
        "http://user:s3cret@127.0.0.1:9/path",
        "http://user:s3cret/9@127.0.0.1:9",
        "http://user:s3cret%ff@127.0.0.1:9",
        "user:s3cret://@127.0.0.1:9",
        "http://[user:s3cret@127.0.0.1:9",
    ],
)
async def test_of_a_proxy_that_is_none_the_scheme_alone_is_told(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    error = await refused()
    scheme = "ftp" if proxy.startswith("ftp") else "http"
    assert f"by the environment's proxy, {scheme}://…: " in str(error)
    while error is not None:
        assert "s3cret" not in repr(error)
        error = error.__cause__


def test_a_url_whose_port_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Port out of range"):
        OpenEnv({"url": "http://openenv.example.invalid:80000"})
