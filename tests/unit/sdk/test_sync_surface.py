"""`Client` is `AsyncClient` without `await`: the same parts, methods and parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import podium
import pytest
from podium.core.errors import UnimplementedError
from podium.sdk import AsyncClient, Client
from podium.sdk.connection.addresses import THIS_MACHINE
from podium.sdk.sync_models import SyncModel
from podium.training.in_process import InProcessBackend
from podium.training.model import TrainableModel
from podium.types.v1 import spec_pb2, trajectory_pb2

PARTS = (
    "jobs",
    "policies",
    "checkpoints",
    "environments",
    "sessions",
    "evaluations",
    "judge",
    "models",
)
# Of TrainableModel: what only asynchronous code can use, or SyncModel does itself.
OF_THE_ASYNC_MODEL = {"backend", "register", "take"}


def public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(method: object) -> list[tuple[str, object, object]]:
    assert callable(method)
    found = list(inspect.signature(method).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in found]


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(THIS_MACHINE) as made:
        yield made


async def test_both_have_the_same_attributes(client: Client) -> None:
    async with AsyncClient(THIS_MACHINE) as other:
        wanted = {name for name in dir(other) if not name.startswith("_")}
    assert {name for name in dir(client) if not name.startswith("_")} == wanted
    assert set(PARTS) <= wanted


@pytest.mark.parametrize("part", PARTS)
async def test_each_part_has_the_same_methods(client: Client, part: str) -> None:
    async with AsyncClient(THIS_MACHINE) as other:
        wanted = public(type(getattr(other, part)))
    found = public(type(getattr(client, part)))
    assert set(found) == set(wanted)
    for name, method in wanted.items():
        assert parameters(found[name]) == parameters(method), name
        assert inspect.getdoc(found[name]) == inspect.getdoc(method)


OWN = sorted(name for name, each in public(AsyncClient).items() if inspect.isfunction(each))


@pytest.mark.parametrize("name", OWN)
def test_what_is_no_part_takes_the_same(name: str) -> None:
    own, other = getattr(Client, name), getattr(AsyncClient, name)
    assert parameters(own) == parameters(other)
    assert inspect.getdoc(own) == inspect.getdoc(other) or name == "close"


@pytest.mark.parametrize("name", ["train", "train_sft"])
def test_a_function_takes_what_its_method_does_and_where(name: str) -> None:
    function = inspect.signature(getattr(podium, name)).parameters.values()
    taken = [(each.name, each.kind, each.default) for each in function]
    method = parameters(getattr(AsyncClient, name))
    assert taken[: len(method)] == method
    assert [each[0] for each in taken[len(method) :]] == ["addresses", "context"]


def test_a_model_has_the_same_methods_which_take_the_same() -> None:
    fields = set(TrainableModel.__dataclass_fields__)
    wanted = {
        name: method
        for name, method in public(TrainableModel).items()
        if name not in OF_THE_ASYNC_MODEL | fields
    }
    found = public(SyncModel)
    assert set(wanted) <= set(found)
    for name, method in wanted.items():
        assert inspect.getdoc(found[name]) == inspect.getdoc(method), name
        if inspect.isfunction(method):
            assert parameters(found[name]) == parameters(method), name


async def test_nothing_of_it_has_to_be_awaited(client: Client) -> None:
    async with AsyncClient(THIS_MACHINE) as other:
        pairs = [(type(getattr(client, part)), type(getattr(other, part))) for part in PARTS]
    for mine, theirs in [*pairs, (Client, AsyncClient), (SyncModel, TrainableModel)]:
        for name, method in public(theirs).items():
            if not inspect.isfunction(method) or (theirs, name) == (TrainableModel, "rollout"):
                continue
            own = getattr(mine, name, None)
            assert not inspect.iscoroutinefunction(own), name
            assert inspect.isgeneratorfunction(own) == inspect.isasyncgenfunction(method), name


def test_what_was_missing_is_called(client: Client) -> None:
    group, reward = trajectory_pb2.Group(), spec_pb2.RewardSpec()
    with InProcessBackend(lambda messages, step: "x") as backend, Client(backend=backend) as made:
        for call in (
            lambda: made.judge.score(group, reward),
            lambda: made.sessions.finish("w"),
            lambda: made.environments.scenarios(spec_pb2.EnvironmentSpec(), "train"),
            lambda: made.policies.take_capture("key"),
            lambda: made.openai_address(50083),
            lambda: made.train({}),
        ):
            with pytest.raises(UnimplementedError, match="not covered by a backend"):
                call()
    assert client.openai_address(50083) == "127.0.0.1:50083"
