"""Each pod behind a name gets a channel of its own, for as long as the name has it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from podium.core.errors import UnavailableError
from podium.kit.rpc import connect, members
from podium.kit.rpc.members import Members, resolve_host


class Names:
    """What DNS says, and what was dialled."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.dialled: list[tuple[str, str]] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        return list(self.addresses)

    def dial(self, address: str, server_name: str) -> grpc.aio.Channel:
        self.dialled.append((address, server_name))
        return connect(address, server_name=server_name)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
async def pool(names: Names) -> AsyncIterator[Members]:
    made = Members("pool.test:50053", names.dial, names.resolve)
    yield made
    await made.close()


async def test_each_address_has_a_channel_that_is_kept(names: Names, pool: Members) -> None:
    names.addresses = ["10.0.0.1:50053", "10.0.0.2:50053"]
    first = await pool.each()
    assert list(first) == names.addresses
    assert pool.whole not in first.values()
    assert await pool.each() == first
    assert names.dialled == [
        ("pool.test:50053", ""),
        ("10.0.0.1:50053", "pool.test"),
        ("10.0.0.2:50053", "pool.test"),
    ]


async def test_one_address_is_reached_by_the_name(names: Names, pool: Members) -> None:
    names.addresses = ["10.0.0.1:50053"]
    assert await pool.each() == {"10.0.0.1:50053": pool.whole}
    names.addresses = []
    assert await pool.each() == {}
    assert names.dialled == [("pool.test:50053", "")]


async def test_what_the_name_has_no_more_is_closed_after_a_while(
    names: Names, pool: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    names.addresses = ["10.0.0.1:50053", "10.0.0.2:50053"]
    gone = (await pool.each())["10.0.0.2:50053"]
    names.addresses = ["10.0.0.1:50053", "10.0.0.3:50053"]
    assert list(await pool.each()) == names.addresses
    monkeypatch.setattr(members, "_FORGET_SECONDS", -1.0)
    await pool.each()
    await pool.close()
    assert gone.get_state() is grpc.ChannelConnectivity.SHUTDOWN


@pytest.mark.parametrize("address", ["127.0.0.1:50053", "[::1]:50053", "unix:/tmp/pool.sock"])
async def test_what_is_no_name_is_one_member(names: Names, address: str) -> None:
    one = Members(address, names.dial, names.resolve)
    assert await one.each() == {address: one.whole}
    assert names.asked == []
    await one.close()


async def test_a_host_of_two_families_is_one_pod() -> None:
    assert await resolve_host("localhost", 50053) == ["127.0.0.1:50053"]


async def test_a_name_without_addresses_is_not_one_that_nobody_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    told = socket.EAI_NONAME

    async def getaddrinfo(*args: Any, **options: Any) -> None:
        raise socket.gaierror(told, "said")

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    assert await resolve_host("nobody.test", 50053) == []
    told = socket.EAI_AGAIN
    with pytest.raises(UnavailableError):
        await resolve_host("nobody.test", 50053)
