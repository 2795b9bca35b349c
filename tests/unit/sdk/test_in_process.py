"""A client whose models train in this process: what it has, and what it says it has not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import podium
import pytest
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from podium.sdk import Addresses, AsyncClient, Client

PARTS = ("jobs", "policies", "environments", "sessions", "evaluations", "judge")


def count(messages: list[dict[str, Any]], step: int) -> str:
    return f"{step}: {messages[-1]['content']}"


@pytest.fixture
def backend() -> Iterator[podium.InProcessBackend]:
    with podium.InProcessBackend(count) as running:
        yield running


async def rollout(model: podium.TrainableModel, text: str) -> podium.Trajectory:
    async with model.openai_client() as calls:
        answer = await calls.chat.completions.create(
            model=model.name, messages=[{"role": "user", "content": text}]
        )
    return podium.Trajectory(reward=float(len(answer.choices[0].message.content or "")))


async def test_a_training_loop_runs_on_the_clients_own_api(
    backend: podium.InProcessBackend, tmp_path: Path
) -> None:
    async with AsyncClient(backend=backend) as client:
        model = await client.models.register("m", "none", base_path=tmp_path)
        for step in range(2):
            groups = await podium.gather_trajectory_groups(
                [podium.TrajectoryGroup(rollout(model, text) for text in ("a", "bb"))]
            )
            assert (await model.train(groups)).step == step + 1
        await client.checkpoints.record("m", 1, {"val/reward": 3.0})
        versions = [version.manifest.version async for version in client.checkpoints.list("m")]
        assert versions == [2, 1, 0]
        assert (await client.checkpoints.get("m")).manifest.version == 2
        read = await client.checkpoints.get("m", 1)
        assert read.evaluation_metrics["val/reward"] == 3
        await client.checkpoints.retain("m", 1, 1, "val/reward")
        assert [v.manifest.version async for v in client.checkpoints.list("m")] == [2, 1]
        with pytest.raises(NotFoundError):
            await client.checkpoints.get("m", 0)
        with pytest.raises(FailedPreconditionError) as refused:
            await client.checkpoints.download(read, tmp_path / "out")
        assert refused.value.reason == "NO_WEIGHTS"
        fork = await client.models.register("f", "none", fork="m@latest", base_path=tmp_path)
        assert await fork.get_step() == 2


def test_the_synchronous_client_has_it_too(backend: podium.InProcessBackend) -> None:
    with Client(backend=backend) as client:
        model = client.models.register("loud", "none")
        with model.rollout(reward=1.0) as trajectory, model.openai_client() as openai:
            openai.chat.completions.create(
                model=model.name, messages=[{"role": "user", "content": "x"}]
            )
        assert model.train([podium.TrajectoryGroup([trajectory])]).step == 1
        assert [v.manifest.version for v in client.checkpoints.list("loud")] == [1, 0]
        with pytest.raises(UnimplementedError, match=r"client\.jobs\.get "):
            client.jobs.get("loud")
        with pytest.raises(UnimplementedError, match=r"client\.jobs\.list "):
            list(client.jobs.list())


@pytest.mark.parametrize("part", PARTS)
def test_every_method_that_needs_an_installation_says_so_by_name(
    part: str, backend: podium.InProcessBackend
) -> None:
    real = type(getattr(AsyncClient(Addresses()), part))
    covered = getattr(AsyncClient(backend=backend), part)
    methods = [name for name, _ in inspect.getmembers(real, inspect.isfunction) if name[0] != "_"]
    assert methods
    for method in methods:
        with pytest.raises(UnimplementedError) as refused:
            getattr(covered, method)()
        assert f"client.{part}.{method} is not covered" in refused.value.message
        assert refused.value.reason == "NOT_IN_PROCESS"
    with pytest.raises(AttributeError, match="no method 'gte'"):
        covered.gte  # noqa: B018


async def test_what_else_is_not_covered_is_named(backend: podium.InProcessBackend) -> None:
    client = AsyncClient(backend=backend)
    with pytest.raises(UnimplementedError, match=r"client\.checkpoints\.models "):
        client.checkpoints.models()
    with pytest.raises(UnimplementedError, match=r"client\.openai_address "):
        await client.openai_address(1)


def test_a_backend_and_an_installation_exclude_each_other(
    backend: podium.InProcessBackend,
) -> None:
    for more in ({"addresses": Addresses()}, {"context": "work"}):
        with pytest.raises(InvalidArgumentError, match="backend: takes the place"):
            AsyncClient(backend=backend, **more)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="backend: takes the place"):
            Client(backend=backend, **more)  # type: ignore[arg-type]


async def test_an_image_is_refused_as_the_engine_refuses_it(
    backend: podium.InProcessBackend,
) -> None:
    async with podium.AsyncClient(backend=backend) as client:
        model = await client.models.register("seer", "any")
        part: Any = {"type": "image_url", "image_url": {"url": "x"}}
        async with model.openai_client() as calls:
            with pytest.raises(openai.BadRequestError, match="the model reads text alone") as told:
                await calls.chat.completions.create(
                    model=model.name, messages=[{"role": "user", "content": [part]}]
                )
    assert told.value.param == "messages[0].content[0].type"
