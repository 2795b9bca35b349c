"""What the rollout service is asked for wrongly, and what it lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from podium.core.errors import (
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnimplementedError,
)
from podium.kit.rpc import rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.types.v1 import spec_pb2
from support.processes import free_port
from support.rollout import PolicyDouble, group_request, serve_inference
from support.rollout_service import collect, environment_here, guess, rollout

if TYPE_CHECKING:
    from support.rollout_service import Stub

__all__ = ["guess"]


def changed(address: str = "", **fields: object) -> pb.CollectGroupRequest:
    request = group_request(2, address=address)
    for path, value in fields.items():
        target, _, name = path.rpartition("__")
        setattr(getattr(request, target) if target else request, name, value)
    return request


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"attempts": 0}, "attempts"),
        ({"group_id": ""}, "group_id"),
        ({"environment__name": ""}, "environment.name"),
        ({"scenario__id": ""}, "scenario.id"),
        ({"sampling__top_p": 0.5}, "sampling.top_p"),
        ({"sampling__temperature": 9.0}, "sampling.temperature"),
        ({"episode__max_turns": 0}, "episode.max_turns"),
        ({"policy__job": "No Job"}, "policy.job"),
    ],
)
async def test_a_wrong_request_is_refused_by_field(
    fields: Mapping[str, object], named: str
) -> None:
    async with rollout("127.0.0.1:1") as stub:
        with pytest.raises(InvalidArgumentError) as caught:
            await collect(stub, changed(**fields))
    assert [violation.field for violation in caught.value.violations] == [named]


@pytest.mark.parametrize("remote", [False, True])
async def test_options_that_an_environment_refuses_are_named_wherever_it_runs(remote: bool) -> None:
    policy = PolicyDouble()
    async with (
        environment_here() as address,
        serve_inference(policy) as inference,
        rollout(inference) as stub,
    ):
        request = group_request(2, address=address if remote else "", options={"tool": True})
        with pytest.raises(InvalidArgumentError) as caught:
            await collect(stub, request)
    assert [v.field for v in caught.value.violations] == ["environment.config.tool"]
    assert not policy.calls


async def test_a_name_that_is_unknown_is_not_found() -> None:
    policy = PolicyDouble()
    async with serve_inference(policy) as inference, rollout(inference) as stub:
        with pytest.raises(NotFoundError) as caught:
            await collect(stub, changed(environment__name="chess"))
        assert caught.value.reason == "ENVIRONMENT_NOT_FOUND"
        assert caught.value.metadata["name"] == "chess"
        with pytest.raises(NotFoundError) as caught:
            await collect(stub, group_request(2, job="other"))
        assert caught.value.reason == "POLICY_NOT_LOADED"


async def test_an_address_that_is_no_environment_ends_the_group() -> None:
    policy = PolicyDouble()
    async with serve_inference(policy) as inference, rollout(inference) as stub:
        with pytest.raises(UnimplementedError):
            await collect(stub, group_request(2, address=inference))
        with pytest.raises(UnavailableError, match="environment 'guess'"):
            await collect(stub, group_request(2, address=f"127.0.0.1:{free_port()}"))


async def listed(stub: Stub, spec: spec_pb2.EnvironmentSpec, split: str, size: int) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        with rpc_errors("rollout"):
            page = await stub.ListScenarios(
                pb.ListScenariosRequest(
                    environment=spec, split=split, page_size=size, page_token=token
                )
            )
        assert len(page.scenarios) <= (size or 1000)
        names += [scenario.id for scenario in page.scenarios]
        token = page.next_page_token
        if not token:
            return names


async def test_scenarios_are_listed_page_by_page_from_wherever_they_are() -> None:
    async with environment_here() as address, rollout("127.0.0.1:1") as stub:
        guess = spec_pb2.EnvironmentSpec(name="guess", address=address)
        emails = spec_pb2.EnvironmentSpec(name="email_search")
        assert await listed(stub, guess, "train", 2) == [f"digit-{n}" for n in range(5)]
        assert await listed(stub, guess, "heldout", 0) == [f"digit-{n}" for n in range(5, 8)]
        whole = await listed(stub, emails, "heldout", 0)
        assert await listed(stub, emails, "heldout", 25) == whole
        assert len(whole) == len(set(whole)) >= 100


@pytest.mark.parametrize("remote", [False, True])
async def test_a_listing_that_cannot_be_says_why(remote: bool) -> None:
    async with environment_here() as address, rollout("127.0.0.1:1") as stub:
        spec = spec_pb2.EnvironmentSpec(name="guess", address=address if remote else "")
        with pytest.raises(NotFoundError, match="no split 'test'; it has train, heldout") as caught:
            await listed(stub, spec, "test", 0)
        assert caught.value.metadata["split"] == "test"
        with pytest.raises(InvalidArgumentError) as refused, rpc_errors("rollout"):
            await stub.ListScenarios(
                pb.ListScenariosRequest(environment=spec, split="train", page_token="mine")
            )
        assert refused.value.violations[0].field == "page_token"


async def test_the_built_in_environments_are_listed() -> None:
    async with rollout("127.0.0.1:1") as stub:
        found = (await stub.ListEnvironments(pb.ListEnvironmentsRequest())).environments
    assert "email_search" in [info.name for info in found]
    assert all(info.description and list(info.splits) == ["train", "heldout"] for info in found)
