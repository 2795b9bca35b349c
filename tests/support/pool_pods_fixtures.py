"""Pools of several pods for the tests of a module, around one registry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from podium.inference.v1 import inference_service_pb2 as pb
from support.pool_pods import PoolPods
from support.processes import RegistryProcess, running_registry

Made = Callable[..., Awaitable[PoolPods]]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryProcess]:
    yield from running_registry()


@pytest.fixture
async def make(registry: RegistryProcess, tmp_path: Path) -> AsyncIterator[Made]:
    made: list[PoolPods] = []

    async def of(count: int, **options: Any) -> PoolPods:
        made.append(PoolPods(registry.address, tmp_path, **options))
        await made[-1].start(count)
        return made[-1]

    yield of
    for pods in made:
        await pods.close()


def call(number: int, end_ns: int) -> pb.CapturedCall:
    """A captured call that sampled one token, `number`."""
    made = pb.CapturedCall(prompt_token_ids=[1], generation=pb.Generation(token_ids=[number]))
    made.end_time.FromNanoseconds(end_ns)
    return made


def numbers(calls: list[pb.CapturedCall]) -> list[int]:
    """What each of the calls sampled."""
    return [each.generation.token_ids[0] for each in calls]
