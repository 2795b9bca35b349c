from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from podium.core.errors import (
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.core.skip_reasons import NOT_COLLECTED
from podium.types.v1 import policy_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain import metrics
from podium_rollout.domain.group import GroupRunner
from support.guess_environment import Guess
from support.rollout import PolicyDouble, group_request, script
from support.waiting import eventually


def collector(policy: PolicyDouble, max_groups: int = 4) -> GroupRunner:
    return GroupRunner(Environments(), {"default": policy}, max_groups)


async def test_a_trajectory_is_given_as_soon_as_it_ends() -> None:
    request = group_request(attempts=3)
    policy = PolicyDouble(script(request, {0: ["hold"], 2: ["hold"]}))
    group = collector(policy).collect(request)
    assert (await anext(group)).attempt == 1
    assert policy.held == 2
    policy.release.set()
    assert sorted([t.attempt async for t in group]) == [0, 2]


async def test_the_attempts_run_at_once() -> None:
    request = group_request(attempts=5)
    policy = PolicyDouble(otherwise="hold")
    task = asyncio.create_task(anext(collector(policy).collect(request)))
    await eventually(lambda: policy.held == 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (policy.aborted, Guess.open) == (5, 0)


async def test_closing_the_group_aborts_what_still_runs() -> None:
    request = group_request(attempts=3)
    policy = PolicyDouble(script(request, {0: ["hold"], 2: ["1", "hold"]}))
    group = collector(policy).collect(request)
    await anext(group)
    await eventually(lambda: policy.held == 2)
    await group.aclose()
    assert (policy.held, policy.aborted, Guess.open) == (0, 2, 0)


async def test_a_policy_that_dies_ends_the_group_and_leaves_nothing_behind() -> None:
    # HTTP clients that earlier tests left open are closed by the collector, in this loop.
    gc.collect()
    await asyncio.sleep(0.1)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    request = group_request(attempts=5)
    # Two die in the same moment: neither's exception may go unheard.
    policy = PolicyDouble(script(request, {0: ["hold"], 1: ["die"], 2: ["die"], 3: ["hang"]}))
    with pytest.raises(UnavailableError, match="inference cannot be reached"):
        _ = [t async for t in collector(policy).collect(request)]
    assert (policy.held, Guess.open) == (0, 0)
    assert metrics.GROUPS_IN_FLIGHT._value.get() == 0
    assert metrics.EPISODES_IN_FLIGHT._value.get() == 0
    gc.collect()
    await asyncio.sleep(0)
    assert not complaints


def comparable(trajectory: pb.Trajectory) -> pb.Trajectory:
    """Without what a clock or a counter wrote."""
    for name in ("start_time", "end_time", "trace_id", "root_span_id"):
        trajectory.ClearField(name)
    for history in trajectory.histories:
        for span in history.tokens.spans:
            span.request_id = ""
    return trajectory


async def test_a_group_that_is_asked_for_again_is_the_same() -> None:
    request = group_request(attempts=3)
    first, again = [
        {
            t.id: comparable(t)
            async for t in collector(PolicyDouble(script(request, {1: ["1"]}))).collect(request)
        }
        for _ in range(2)
    ]
    assert sorted(first) == [f"{request.group_id}/t{n}" for n in range(3)]
    assert first == again


@pytest.mark.parametrize("loss", ["die once", "break once"])
async def test_a_lost_call_costs_its_attempt_which_begins_again_alone(loss: str) -> None:
    request = group_request(attempts=3)
    before = metrics.ATTEMPTS_BEGUN_AGAIN._value.get()
    whole = PolicyDouble(script(request, {1: ["1"]}))
    lossy = PolicyDouble(script(request, {1: ["1", loss]}))
    found, expected = [
        {t.id: comparable(t) async for t in collector(policy).collect(request)}
        for policy in (lossy, whole)
    ]
    assert found == expected
    assert len(lossy.calls) == len(whole.calls) + 2
    assert metrics.ATTEMPTS_BEGUN_AGAIN._value.get() == before + 1
    assert Guess.open == 0


async def test_an_attempt_that_breaks_inference_twice_fails_alone() -> None:
    request = group_request(attempts=3)
    policy = PolicyDouble(script(request, {1: ["1", "break"]}))
    found = {t.attempt: t async for t in collector(policy).collect(request)}
    broken = found.pop(1)
    assert broken.stop_reason == pb.STOP_REASON_FAILED
    assert (broken.failure.type, broken.failure.message) == (NOT_COLLECTED, "inference broke on it")
    assert {t.environment_reward for t in found.values()} == {1.0}


async def test_inference_that_breaks_on_every_attempt_breaks_the_group() -> None:
    request = group_request(attempts=2)
    with pytest.raises(InternalError, match="inference broke on it"):
        _ = [t async for t in collector(PolicyDouble(otherwise="break")).collect(request)]
    assert Guess.open == 0


async def test_an_attempt_does_not_begin_again_when_nobody_would_wait_for_it() -> None:
    request = group_request(attempts=1)
    request.episode.session_wait_seconds = 1e-9
    policy = PolicyDouble(script(request, {0: ["1", "die once"]}))
    with pytest.raises(UnavailableError, match="lost"):
        _ = [t async for t in collector(policy).collect(request)]
    assert len(policy.calls) == 2


async def test_a_group_too_many_is_refused_and_room_is_given_back() -> None:
    request = group_request(attempts=2)
    policy = PolicyDouble(otherwise="hold")
    service = collector(policy, max_groups=1)
    running = service.collect(request)
    task = asyncio.create_task(anext(running))
    await eventually(lambda: policy.held == 2)
    with pytest.raises(ResourceExhaustedError) as caught:
        await anext(service.collect(request))
    assert caught.value.reason == "TOO_MANY_GROUPS"
    assert policy.held == 2

    policy.otherwise = "4"
    policy.release.set()
    await task
    await running.aclose()
    assert len([t async for t in service.collect(request)]) == 2


async def test_a_request_names_its_pool_and_else_gets_the_first() -> None:
    pools = {"first": PolicyDouble(), "second": PolicyDouble()}
    service = GroupRunner(Environments(), pools, 4)
    for name, asked in (("", "first"), ("second", "second")):
        request = group_request()
        request.pool = name
        before = {pool: len(double.calls) for pool, double in pools.items()}
        _ = [t async for t in service.collect(request)]
        called = {pool for pool, double in pools.items() if len(double.calls) > before[pool]}
        assert called == {asked}
    request.pool = "third"
    with pytest.raises(InvalidArgumentError) as caught:
        await anext(service.collect(request))
    (violation,) = caught.value.violations
    assert (violation.field, violation.description) == (
        "pool",
        "got 'third'; allowed are first, second",
    )


@pytest.mark.parametrize(
    ("field", "sampling"),
    [
        ("sampling.top_p", policy_pb2.SamplingParams(top_p=0.9)),
        ("sampling.top_k", policy_pb2.SamplingParams(top_k=5)),
        ("sampling.json_schema", policy_pb2.SamplingParams(json_schema="{}")),
    ],
)
async def test_t4_a_filter_that_falsifies_log_probs_is_refused_by_field(
    field: str, sampling: policy_pb2.SamplingParams
) -> None:
    request = group_request()
    request.sampling.MergeFrom(sampling)
    policy = PolicyDouble()
    with pytest.raises(InvalidArgumentError) as caught:
        await anext(collector(policy).collect(request))
    assert [violation.field for violation in caught.value.violations] == [field]
    assert not policy.calls
