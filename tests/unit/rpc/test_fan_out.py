"""Every pod is asked and waited for; one that went away is told from one that refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from podium.core.errors import (
    REQUESTS_DID_NOT_END,
    WEIGHTS_NOT_EXCHANGED,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from podium.kit.rpc import connect
from podium.kit.rpc.fan_out import ask_each
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from support.processes import free_port

Channels = dict[str, grpc.aio.Channel]


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    made = {name: connect("127.0.0.1:1") for name in ("a", "b", "c")}
    yield made
    for channel in made.values():
        await channel.close()


def name_of(channels: Channels, channel: grpc.aio.Channel) -> str:
    return next(name for name, each in channels.items() if each is channel)


async def test_all_answer(channels: Channels) -> None:
    async def ask(channel: grpc.aio.Channel) -> str:
        return name_of(channels, channel).upper()

    asked = await ask_each(channels, ask, "pod")
    assert asked.answers == {"a": "A", "b": "B", "c": "C"}
    assert asked.gone == {}


async def test_nobody_is_asked_where_there_is_none() -> None:
    async def ask(channel: grpc.aio.Channel) -> str:
        raise AssertionError

    asked = await ask_each({}, ask, "pod")
    assert (asked.answers, asked.gone) == ({}, {})


async def test_who_cannot_be_reached_went_away() -> None:
    channel = connect(f"127.0.0.1:{free_port()}")

    async def ask(channel: grpc.aio.Channel) -> pb.ListModelsResponse:
        return await pb_grpc.RegistryServiceStub(channel).ListModels(
            pb.ListModelsRequest(), timeout=5, wait_for_ready=False
        )

    asked = await ask_each({"a": channel}, ask, "registry")
    await channel.close()
    assert asked.answers == {}
    assert asked.gone["a"].metadata == {"peer": "registry"}


async def test_all_are_waited_for_though_one_refuses(channels: Channels) -> None:
    refused, done = asyncio.Event(), list[str]()

    async def ask(channel: grpc.aio.Channel) -> None:
        name = name_of(channels, channel)
        if name == "a":
            refused.set()
            raise InvalidArgumentError("no")
        await refused.wait()
        # Whoever ended the others with the first refusal would do so here.
        for _ in range(10):
            await asyncio.sleep(0)
        done.append(name)

    with pytest.raises(InvalidArgumentError):
        await ask_each(channels, ask, "pod")
    assert sorted(done) == ["b", "c"]


@pytest.mark.parametrize(
    "error",
    [
        FailedPreconditionError("another policy"),
        UnavailableError("busy", reason=REQUESTS_DID_NOT_END),
        UnavailableError("no such layer", reason=WEIGHTS_NOT_EXCHANGED),
        UnavailableError("no registry", metadata={"peer": "registry"}),
    ],
)
async def test_who_lacks_something_is_there(
    channels: Channels, error: FailedPreconditionError | UnavailableError
) -> None:
    async def ask(channel: grpc.aio.Channel) -> None:
        if channel is channels["b"]:
            raise error

    with pytest.raises(type(error)) as caught:
        await ask_each(channels, ask, "pod")
    assert caught.value is error


async def test_who_went_away_is_left_out(channels: Channels) -> None:
    away = UnavailableError("gone", metadata={"peer": "pod"})

    async def ask(channel: grpc.aio.Channel) -> int:
        if channel is channels["b"]:
            raise away
        return 1

    asked = await ask_each(channels, ask, "pod")
    assert asked.answers == {"a": 1, "c": 1}
    assert asked.gone == {"b": away}


async def test_its_end_ends_all(channels: Channels) -> None:
    ended: list[str] = []

    async def ask(channel: grpc.aio.Channel) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name_of(channels, channel))

    task = asyncio.create_task(ask_each(channels, ask, "pod"))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == ["a", "b", "c"]
