"""What several pods captured of one rollout, put together."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import (
    DataLossError,
    NotFoundError,
    UnavailableError,
)
from podium.kit.rpc import retry_unavailable
from support.pool_pods import KEY
from support.pool_pods_fixtures import Made, call, make, numbers, registry

__all__ = ["make", "registry"]


async def test_calls_of_one_rollout_are_put_together_whichever_pods_had_them(make: Made) -> None:
    pods = await make(3)
    one, two, three = pods.named
    for pod, number in ((one, 1), (two, 2), (one, 3), (three, 4)):
        pod.captures.add(KEY, call(number, number))
    for pod in pods.named:
        assert numbers(await pod.take()) == [1, 2, 3, 4]
    with pytest.raises(NotFoundError) as caught:
        await one.take("podium-rollout-another")
    assert caught.value.reason == "NOTHING_CAPTURED"


async def test_a_rollout_is_whole_or_it_is_said(make: Made) -> None:
    pods = await make(2)
    one, two = pods.named
    await one.captured(call(1, 1))
    await two.captured(call(2, 2))
    assert numbers(await one.take()) == [1, 2]
    await two.kill()
    with pytest.raises(UnavailableError):
        await one.take()
    # It is known to be gone, and what it had with it; also to a pod that came afterwards.
    pods.named = [one]
    with pytest.raises(DataLossError, match="1 of the pool's processes") as caught:
        await one.take()
    assert caught.value.reason == "CAPTURE_LOST"
    await pods.pods[2].start()
    pods.named = [one, pods.pods[2]]
    with pytest.raises(DataLossError) as caught:
        await pods.pods[2].take()
    assert caught.value.reason == "CAPTURE_LOST"


async def test_what_another_process_in_the_same_pod_had_is_lost_too(make: Made) -> None:
    pods = await make(2)
    one, two = pods.named
    await one.captured(call(1, 1))
    await two.captured(call(2, 2))
    await two.kill()
    await two.start()
    await two.captured(call(3, 3))
    for pod in pods.named:
        with pytest.raises(DataLossError) as caught:
            # As clients do: the way to the one that died is tried again after a while.
            await retry_unavailable(pod.take, timeout_s=60)
        assert caught.value.reason == "CAPTURE_LOST"


async def test_the_death_of_a_pod_is_no_loss_to_rollouts_without_calls_there(make: Made) -> None:
    pods = await make(3)
    one, two, three = pods.named
    await one.captured(call(1, 1))
    await three.captured(call(2, 2))
    await two.captured(call(3, 3), "podium-rollout-another")
    await two.kill()
    pods.named = [one, three]
    for pod in pods.named:
        assert numbers(await pod.take()) == [1, 2]


async def test_siblings_are_told_once_and_those_that_do_not_answer_are_left_out(
    make: Made,
) -> None:
    pods = await make(3)
    one, two, three = pods.named
    await two.kill()
    await asyncio.gather(*(one.captured(call(number, number)) for number in range(3)))
    assert three.holders.of(KEY) == one.holders.of(KEY) == {one.holders.process}
    # It is gone for good; nobody who was there then is needed but one.
    pods.named = [three]
    await one.kill()
    with pytest.raises(DataLossError):
        await three.take()


async def test_what_a_sibling_has_dropped_is_said(make: Made) -> None:
    pods = await make(2)
    one, two = pods.named
    for number in range(1001):
        two.captures.add(KEY, call(number, number))
    with pytest.raises(DataLossError) as caught:
        await one.take()
    assert caught.value.reason == "CAPTURE_DROPPED"
