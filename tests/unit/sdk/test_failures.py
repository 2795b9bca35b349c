"""Errors name the address that the user gave, and leave what services say of each other alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from podium.core.errors import DeadlineExceededError, NotFoundError, UnavailableError
from podium.sdk import Addresses, AsyncClient
from podium.sdk.connection.contexts import Kubernetes
from podium.sdk.connection.failures import failures
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from support.fake_podium import FakePodium, fake_podium

EPISODE = spec_pb2.EpisodeSpec(timeout_seconds=1, step_timeout_seconds=1, session_wait_seconds=1)


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        yield running


async def first(items: AsyncIterator[Any]) -> Any:
    return await anext(items)


async def run(client: AsyncClient) -> Any:
    return await client.environments.run(
        spec_pb2.EnvironmentSpec(name="x"),
        [trajectory_pb2.Scenario(id="1")],
        policy_pb2.PolicyRef(),
        policy_pb2.SamplingParams(),
        EPISODE,
    )


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("controller", lambda client: client.jobs.get("w")),
        ("controller", lambda client: first(client.jobs.list())),
        ("controller", lambda client: first(client.jobs.watch("w", reconnect_seconds=0))),
        ("controller", lambda client: client.sessions.finish("w")),
        ("registry", lambda client: client.checkpoints.get("w")),
        ("inference", lambda client: client.policies.engine()),
        ("rollout", lambda client: client.environments.list()),
        ("rollout", run),
        ("judge", lambda client: client.judge.score(trajectory_pb2.Group(), spec_pb2.RewardSpec())),
    ],
)
async def test_a_service_that_is_away_is_named_with_its_address(service: str, call: Any) -> None:
    address = "127.0.0.1:1"
    async with AsyncClient(Addresses(address, address, address, address, address)) as client:
        with pytest.raises(UnavailableError) as caught:
            await call(client)
    assert caught.value.message == f"{service} at {address} cannot be reached (connection refused)"
    assert str(caught.value) == caught.value.message
    assert caught.value.metadata["peer"] == service


async def test_so_is_one_that_is_silent(fake: FakePodium) -> None:
    fake.jobs.silent = True
    async with AsyncClient(fake.addresses, timeout=0.2) as client:
        with pytest.raises(DeadlineExceededError) as caught:
            await first(client.jobs.list())
    where = fake.addresses.controller
    assert caught.value.message == f"controller at {where} did not answer in time"


async def test_what_a_service_answers_stays_as_it_is(fake: FakePodium) -> None:
    async with AsyncClient(fake.addresses) as client:
        with pytest.raises(NotFoundError) as caught:
            await client.jobs.get("nope")
    assert fake.addresses.controller not in str(caught.value)
    said = UnavailableError("rollout cannot be reached", metadata={"peer": "rollout"})
    with pytest.raises(UnavailableError) as unreached, failures("controller", " at b")():
        raise said
    assert str(unreached.value) == "rollout cannot be reached"


async def test_a_release_is_named_where_it_has_no_address() -> None:
    where = Addresses(kubernetes=Kubernetes(context="lab", namespace="ml", release="podium"))
    async with AsyncClient(where) as client:
        _, place = client._channels.service("controller")
    assert place == " of release podium in namespace ml of the Kubernetes context lab"


async def test_that_a_proxy_was_asked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for address, said in (
        ("controller.example.invalid:443", ", by the environment's proxy, cannot be reached"),
        ("127.0.0.1:9", "controller at 127.0.0.1:9 cannot be reached"),
    ):
        async with AsyncClient(Addresses(controller=address)) as client:
            with pytest.raises(UnavailableError, match=said):
                await client.jobs.get("w")
