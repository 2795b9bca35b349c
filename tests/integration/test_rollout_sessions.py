"""Episodes of remote environments: connections that break, slots that are taken, the score."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from podium.core.errors import ResourceExhaustedError, UnavailableError
from podium.environment.v1 import environment_service_pb2_grpc
from podium.environments import catalog
from podium.environments.serving.convert import struct, unstruct
from podium.environments.serving.servicer import EnvironmentServicer
from podium.environments.serving.sessions import SessionLimits
from podium.kit.rpc import Server, ServerSettings
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.adapters.remote import RemoteSession
from podium_rollout.domain import metrics
from podium_rollout.domain.group import GroupRunner
from support.counting_environment import Counting
from support.cutting_proxy import CuttingProxy
from support.full import full
from support.loop_clock import LoopClock
from support.rollout import PolicyDouble, group_request, script
from support.waiting import eventually


@pytest.fixture(autouse=True)
async def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    Counting.forget()
    path = "support.counting_environment:Counting"
    monkeypatch.setitem(catalog._BUILTIN, "counting", path)


@asynccontextmanager
async def served(limits: SessionLimits = SessionLimits()) -> AsyncIterator[CuttingProxy]:  # noqa: B008
    server = Server("environment", ServerSettings())
    servicer = EnvironmentServicer(Counting, limits)
    server.add(
        environment_service_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        servicer,
        "podium.environment.v1.EnvironmentService",
    )
    await server.start()
    proxy = CuttingProxy(server.port)
    try:
        async with proxy.running():
            yield proxy
    finally:
        await server.stop(0)
        await servicer.close()


def counted(
    address: str = "", attempts: int = 1, **episode: float
) -> rollout_pb.CollectGroupRequest:
    request = group_request(attempts, address=address, **episode)
    request.environment.name = "counting"
    return request


async def collect(
    request: rollout_pb.CollectGroupRequest,
    said: Sequence[str] | PolicyDouble,
    resume_seconds: float = 10.0,
) -> list[pb.Trajectory]:
    environments = Environments(resume_seconds)
    if isinstance(said, PolicyDouble):
        policy = said
    else:
        policy = PolicyDouble(script(request, dict.fromkeys(range(request.attempts), said)))
    try:
        collector = GroupRunner(environments, {"default": policy}, max_groups=1)
        return sorted([t async for t in collector.collect(request)], key=lambda t: t.attempt)
    finally:
        await environments.close()


async def test_t21_a_connection_that_breaks_in_mid_step_changes_nothing() -> None:
    (expected,) = await collect(counted(), ["a", "b", "end"])
    Counting.forget()
    async with served() as proxy:
        collecting = asyncio.create_task(collect(counted(proxy.address), ["a", "wait", "end"]))
        await eventually(lambda: Counting.log == ["reset", "a", "wait"])
        proxy.cut()
        await asyncio.sleep(0.2)
        Counting.release.set()
        (found,) = await collecting
    assert Counting.log == ["reset", "a", "wait", "end", "score", "close"]
    assert found.stop_reason == expected.stop_reason == pb.STOP_REASON_TERMINATED
    assert found.environment_reward == expected.environment_reward == 33
    assert dict(found.metrics) == dict(expected.metrics)


async def test_a_call_that_an_environment_ended_by_raising_leaves_nothing_to_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else each such attempt leaves a task of gRPC's, and an error about it in the log."""
    # What other tests have left is none of it.
    gc.collect()
    await asyncio.sleep(0)
    caplog.clear()
    async with served() as proxy:
        (found,) = await collect(counted(proxy.address), ["a", "raise"])
        assert found.stop_reason == pb.STOP_REASON_FAILED
        gc.collect()
        await asyncio.sleep(0)
    assert [each.message for each in caplog.records if each.name == "asyncio"] == []


async def test_a_session_that_ended_well_is_not_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a server that is slow to end the stream logs it as CANCELLED."""
    over: list[bool] = []
    drop = RemoteSession._drop

    async def observed(session: RemoteSession) -> None:
        if session._call is not None:
            over.append(session._call.done())
        await drop(session)

    monkeypatch.setattr(RemoteSession, "_drop", observed)
    async with served() as proxy:
        await collect(counted(proxy.address, attempts=4), ["a", "end"])
    assert over == [True] * 4


async def test_an_environment_that_is_away_is_named_with_its_address() -> None:
    named = r"environment 'counting' at 127\.0\.0\.1:9 cannot"
    with pytest.raises(UnavailableError, match=named) as caught:
        await collect(counted("127.0.0.1:9", session_wait_seconds=1), ["end"], resume_seconds=0.1)
    assert caught.value.reason == "ENVIRONMENT_UNAVAILABLE"


async def test_a_connection_that_breaks_between_steps_changes_nothing() -> None:
    async with served() as proxy:
        policy = PolicyDouble(otherwise="hold")
        collecting = asyncio.create_task(collect(counted(proxy.address), policy))
        await eventually(lambda: policy.held == 1)
        proxy.refuses = True
        proxy.cut()
        policy.otherwise = "end"
        policy.release.set()
        await asyncio.sleep(1.0)
        proxy.refuses = False
        (found,) = await collecting
        await eventually(lambda: Counting.open == 0)
    assert Counting.log == ["reset", "end", "score", "close"]
    assert found.environment_reward == 11


@pytest.mark.parametrize("why", ["away", "lost"])
async def test_a_session_that_is_gone_costs_its_attempt_which_begins_again(why: str) -> None:
    # It must not give up before it hears that the session is lost.
    seconds = 2.0 if why == "away" else 60.0
    async with served(SessionLimits(resume_seconds=0.1)) as proxy:
        policy = PolicyDouble(otherwise="hold")
        collecting = asyncio.create_task(collect(counted(proxy.address), policy, seconds))
        await eventually(lambda: policy.held == 1)
        proxy.refuses = True
        proxy.cut()
        await eventually(lambda: Counting.open == 0)
        proxy.refuses = why == "away"
        policy.otherwise = "end"
        policy.release.set()
        if why == "away":
            # Of all attempts, of which there is one.
            with pytest.raises(UnavailableError) as caught:
                await collecting
            assert caught.value.reason == "EPISODES_LOST"
            assert Counting.log == ["reset", "close"]
        else:
            (found,) = await collecting
            assert found.environment_reward == 11
            await eventually(lambda: Counting.open == 0)
            assert Counting.log == ["reset", "close", "reset", "end", "score", "close"]


async def test_an_episode_that_is_cut_while_the_connection_is_broken_is_scored() -> None:
    async with served() as proxy:
        policy = PolicyDouble(otherwise="hold")
        request = counted(proxy.address, timeout_seconds=3.0)
        collecting = asyncio.create_task(collect(request, policy))
        await eventually(lambda: policy.held == 1)
        proxy.refuses = True
        proxy.cut()
        policy.release.set()
        await asyncio.sleep(3.5)
        proxy.refuses = False
        (found,) = await collecting
    assert found.stop_reason == pb.STOP_REASON_DEADLINE
    assert Counting.log == ["reset", "score", "close"]


async def test_an_environment_that_says_that_it_is_away_has_its_attempt_begin_again_once() -> None:
    async with served() as proxy:
        with pytest.raises(UnavailableError, match="the game server restarts") as caught:
            await collect(counted(proxy.address), ["away"])
    assert caught.value.reason == "ENVIRONMENT_UNAVAILABLE"
    assert Counting.log == ["reset", "away", "close"] * 2


async def test_time_in_the_queue_is_no_time_of_the_episode() -> None:
    async with served(SessionLimits(max_sessions=1)) as proxy:
        request = counted(proxy.address, attempts=2, timeout_seconds=2.0)
        policy = PolicyDouble(otherwise="wait")
        found = await collect(request, policy)
    assert [t.stop_reason for t in found] == [pb.STOP_REASON_DEADLINE] * 2
    assert Counting.log == ["reset", "wait", "score", "close"] * 2


async def test_a_group_that_is_cancelled_leaves_no_session_behind() -> None:
    async with served(SessionLimits(max_sessions=2)) as proxy:
        policy = PolicyDouble(otherwise="wait")
        collecting = asyncio.create_task(collect(counted(proxy.address, attempts=3), policy))
        await eventually(lambda: Counting.log.count("wait") == 2)
        collecting.cancel()
        await asyncio.wait([collecting])
        assert Counting.open == 0
        assert [
            t.environment_reward for t in await collect(counted(proxy.address, 3), ["end"])
        ] == [11] * 3


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("cut", "said", "reason", "reward"),
    [
        ({}, ["a", "end"], pb.STOP_REASON_TERMINATED, 22),
        ({"max_turns": 2}, ["a", "b"], pb.STOP_REASON_MAX_TURNS, 22),
        ({"timeout_seconds": 2.0}, ["a", "wait"], pb.STOP_REASON_DEADLINE, 11),
        ({}, ["a", "b" * 400], pb.STOP_REASON_CONTEXT_LENGTH, 22),
    ],
)
async def test_an_episode_is_scored_once_however_it_ended(
    cut: dict[str, float],
    said: list[str],
    reason: pb.StopReason.ValueType,
    reward: float,
    remote: bool,
) -> None:
    async with served() as proxy:
        request = counted(proxy.address if remote else "", **cut)
        policy = PolicyDouble(script(request, {0: said}), window=200)
        (found,) = await collect(request, policy)
    assert (found.stop_reason, found.environment_reward) == (reason, reward)
    # S19: what the steps paid and what came in the end add up to it.
    assert [step.reward for step in found.transitions] == [1] * (reward // 11)
    assert found.score_reward == 10 * (reward // 11)
    assert Counting.log.count("score") == 1
    assert Counting.log[-2:] == ["score", "close"]
    assert (found.metrics["scored"], found.metrics["steps"]) == (1, reward // 11)
    assert unstruct(found.info) == {"said": "scored", "kept": True}


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize(
    ("score", "kind", "words"),
    [
        ("raise", "RuntimeError", "no jury"),
        ("nan", "ValueError", "reward is nan; allowed are finite numbers"),
        ("wrong type", "TypeError", "score returned float, not Score"),
    ],
)
async def test_a_score_that_breaks_fails_its_attempt(
    score: str, kind: str, words: str, remote: bool
) -> None:
    async with served() as proxy:
        request = counted(proxy.address if remote else "")
        request.environment.config.CopyFrom(struct({"score": score}))
        (found,) = await collect(request, ["end"])
    assert found.stop_reason == pb.STOP_REASON_FAILED
    assert (found.failure.type, found.failure.message) == (kind, words)
    assert not found.HasField("environment_reward")


async def test_an_episode_that_failed_is_not_scored() -> None:
    (found,) = await collect(counted(), ["a", "raise"])
    assert found.stop_reason == pb.STOP_REASON_FAILED
    assert Counting.log == ["reset", "a", "raise", "close"]


@pytest.mark.parametrize("remote", [full(False), True], ids=["built in", "served"])
async def test_what_an_environment_queues_for_is_no_time_of_its_step(remote: bool) -> None:
    """Nor of its episode, and over a connection that breaks meanwhile too."""
    times = {"step_timeout_seconds": 60, "timeout_seconds": 120, "session_wait_seconds": 3600}
    resumed, waiting = metrics.SESSIONS_RESUMED._value, metrics.EPISODES_WAITING._value
    clock, before = LoopClock(), resumed.get()
    async with served() as proxy:
        address = proxy.address if remote else ""
        collecting = asyncio.create_task(collect(counted(address, **times), ["queue", "end"]))
        await eventually(lambda: Counting.log == ["reset", "queue"])
        for cuts in range(3):
            if remote and cuts:
                proxy.cut()
                await eventually(lambda cuts=cuts: resumed.get() == before + cuts)
            await eventually(lambda: waiting.get() == 1)
            passed = asyncio.Event()
            asyncio.get_running_loop().call_later(99, passed.set)
            clock.advance(100)
            await passed.wait()
        assert not collecting.done()
        Counting.release.set()
        (found,) = await collecting
    assert found.stop_reason == pb.STOP_REASON_TERMINATED, found.failure
    assert found.environment_reward == 22
    assert Counting.log == ["reset", "queue", "end", "score", "close"]
    assert waiting.get() == 0


@pytest.mark.parametrize("remote", [False, True], ids=["built in", "served"])
async def test_a_queue_without_an_end_ends_the_group(remote: bool) -> None:
    async with served() as proxy:
        request = counted(proxy.address if remote else "", session_wait_seconds=0.5)
        with pytest.raises(ResourceExhaustedError) as caught:
            await collect(request, ["queue"])
        assert caught.value.reason == "QUEUED_TOO_LONG"
        await eventually(lambda: Counting.open == 0)
    assert metrics.EPISODES_WAITING._value.get() == 0


@pytest.mark.parametrize("remote", [False, True], ids=["built in", "served"])
async def test_what_no_encoding_has_in_an_error_fails_its_attempt_alone(remote: bool) -> None:
    async with served() as proxy:
        (found,) = await collect(counted(proxy.address if remote else ""), ["surrogate"])
    assert found.stop_reason == pb.STOP_REASON_FAILED
    assert (found.failure.type, found.failure.message) == ("RuntimeError", "\ufffd")
