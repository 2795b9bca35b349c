"""The rollout service over real gRPC: environments elsewhere, a double of inference."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from podium.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.kit.rpc import connect, rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc
from podium.sdk.evaluation import run_policy
from podium.types.v1 import trajectory_pb2
from podium_rollout.domain import metrics
from support.guess_environment import Guess
from support.processes import free_port, start_process, wait_for_port
from support.rollout import PolicyDouble, group_request, script, serve_inference
from support.rollout_service import Process, collect, environment, environment_here, guess, rollout
from support.waiting import eventually

if TYPE_CHECKING:
    from support.rollout_service import Stub

__all__ = ["environment", "guess"]


async def collect_once_it_is_back(
    stub: Stub, request: pb.CollectGroupRequest
) -> list[trajectory_pb2.Trajectory]:
    """Asks again, as the controller does, while the channel waits to connect anew."""
    for _ in range(100):
        try:
            return await collect(stub, request)
        except UnavailableError as error:
            assert "cannot be reached" in error.message  # noqa: PT017 - the retry's only excuse
            await asyncio.sleep(0.2)
    raise AssertionError("did not come back")


def comparable(trajectory: trajectory_pb2.Trajectory) -> trajectory_pb2.Trajectory:
    """Without what a clock or a counter wrote."""
    for name in ("start_time", "end_time", "trace_id", "root_span_id"):
        trajectory.ClearField(name)
    for history in trajectory.histories:
        for span in history.tokens.spans:
            span.request_id = ""
    return trajectory


async def test_an_environment_of_another_process_gives_what_a_built_in_one_gives(
    environment: Process,
) -> None:
    await environment.start()
    here = group_request(3, options={"tools": True})
    there = group_request(3, options={"tools": True}, address=environment.address)
    policy = PolicyDouble(script(here, {0: ["1", "9", "4"], 1: ["cut"]}))
    async with serve_inference(policy) as inference, rollout(inference) as stub:
        built_in = [comparable(t) for t in await collect(stub, here)]
        remote = [comparable(t) for t in await collect(stub, there)]
    assert remote == built_in
    assert [len(t.histories[0].tokens.spans) for t in remote] == [3, 1, 1]
    assert [t.environment_reward for t in remote] == [1.0, 0.5, 1.0]
    assert [tool.name for tool in remote[0].histories[0].tools] == ["guess"]


async def test_s4_a_class_with_tuples_is_served_as_it_is() -> None:
    port = free_port()
    path = "support.tutorial_environment:Dice"
    served = Process(["podium.cli", "env", "serve", path, "--port", str(port)], port)
    try:
        await served.start()
        request = group_request(attempts=2, address=served.address)
        request.environment.name = "dice"
        request.scenario.Clear()
        request.scenario.id = "train-0"
        policy = PolicyDouble(script(request, {0: ["throw"], 1: ["five"]}))
        async with serve_inference(policy) as inference, rollout(inference) as stub:
            played, broken = await collect(stub, request)
    finally:
        served.kill()
    assert played.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED
    assert (played.environment_reward, played.metrics["success"]) == (0.5, 0.0)
    assert [step.reward for step in played.transitions] == [0.5]
    assert broken.failure.type == "TypeError"


async def test_code_that_breaks_behind_grpc_fails_its_attempt_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with environment_here() as address:
        request = group_request(4, address=address, step_timeout_seconds=5)
        policy = PolicyDouble(script(request, {0: ["raise"], 1: ["hang"], 2: ["nan"]}))
        async with serve_inference(policy) as inference, rollout(inference) as stub:
            found = await collect(stub, request)
            await eventually(lambda: Guess.open == 0)
    failures = [(t.failure.type, t.failure.message) for t in found]
    assert failures == [
        ("RuntimeError", "the wheel came off"),
        ("TimeoutError", "the environment did not answer within 5 s"),
        ("ValueError", "reward is nan; allowed are finite numbers"),
        ("", ""),
    ]
    assert found[3].environment_reward == 1.0
    # The log that the trajectories point to, and nothing taken for a defect of ours.
    raised = [record for record in caplog.records if record.message == "the environment raised"]
    assert {found[n].failure.traceback.split()[-1] for n in (0, 2)} == {
        vars(record)["error_id"] for record in raised
    }
    assert "uncaught exception" not in caplog.text


async def test_an_environment_killed_in_mid_episode_costs_the_attempts_that_it_played(
    environment: Process,
) -> None:
    await environment.start()
    request = group_request(3, address=environment.address)
    policy = PolicyDouble(script(request, {0: ["hang"], 1: ["1", "hold"]}))
    async with serve_inference(policy) as inference, rollout(inference) as stub:
        call = stub.CollectGroup(request, timeout=60)
        first = await call.read()
        assert first.trajectory.attempt == 2
        await eventually(lambda: policy.held == 1)
        environment.kill()
        policy.release.set()
        others = [(await call.read()).trajectory for _ in range(2)]
        assert {each.attempt for each in others} == {0, 1}
        assert {each.failure.type for each in others} == {"UnavailableError"}
        assert all("environment 'guess'" in each.failure.message for each in others)
        assert first.trajectory.environment_reward == 1.0
        # Where it is away from the beginning, there is no group.
        with pytest.raises(UnavailableError, match="environment 'guess'") as caught:
            await collect(stub, request)
        assert caught.value.reason == "ENVIRONMENT_UNAVAILABLE"

        await environment.start()
        policy.replies = {}
        found = await collect_once_it_is_back(stub, request)
        assert [t.environment_reward for t in found] == [1.0] * 3


async def test_inference_that_dies_in_mid_episode_ends_the_group(environment: Process) -> None:
    request = group_request(3)
    replies = {str(seed): text for seed, text in script(request, {1: ["4"]}).items()}
    port = free_port()
    inference = Process(["support.rollout", str(port), json.dumps(replies)], port)
    await inference.start()
    try:
        async with rollout(inference.address) as stub:
            call = stub.CollectGroup(request, timeout=60)
            first = await call.read()
            assert first.trajectory.attempt == 1
            assert first.trajectory.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED
            inference.kill()
            with pytest.raises(UnavailableError, match="inference"), rpc_errors("rollout"):
                await call.read()
    finally:
        inference.kill()
    assert Guess.open == 0
    assert metrics.GROUPS_IN_FLIGHT._value.get() == 0


@pytest.mark.parametrize("reply", ["hold", "hang"])
async def test_a_cancelled_call_stops_its_episodes_and_their_generations(reply: str) -> None:
    async with environment_here() as address:
        request = group_request(4, address=address)
        policy = PolicyDouble(script(request, {1: ["1", reply], 2: [reply], 3: [reply]}))
        async with serve_inference(policy) as inference, rollout(inference) as stub:
            call = stub.CollectGroup(request, timeout=60)
            await call.read()
            await eventually(lambda: len(policy.calls) == 5)
            assert Guess.open == 3
            call.cancel()
            await eventually(lambda: Guess.open == 0)
            await eventually(lambda: policy.held == 0)
            assert policy.aborted == (3 if reply == "hold" else 0)
            await eventually(lambda: metrics.GROUPS_IN_FLIGHT._value.get() == 0)


async def test_a_call_past_its_deadline_stops_its_episodes_too() -> None:
    policy = PolicyDouble(otherwise="hold")
    async with serve_inference(policy) as inference, rollout(inference) as stub:
        with pytest.raises(DeadlineExceededError):
            await collect(stub, group_request(2), timeout_s=3)
        await eventually(lambda: policy.aborted == 2)
        await eventually(lambda: Guess.open == 0)


async def test_an_episode_past_its_own_deadline_is_a_trajectory() -> None:
    request = group_request(2, timeout_seconds=3)
    policy = PolicyDouble(script(request, {0: ["hold"]}))
    async with serve_inference(policy) as inference, rollout(inference) as stub:
        late, other = await collect(stub, request)
        await eventually(lambda: policy.aborted == 1)
    assert late.stop_reason == trajectory_pb2.STOP_REASON_DEADLINE
    assert other.environment_reward == 1.0


async def test_groups_beyond_capacity_are_refused_and_room_comes_back() -> None:
    policy = PolicyDouble(otherwise="hold")
    async with serve_inference(policy) as inference, rollout(inference, max_groups=1) as stub:
        running = asyncio.create_task(collect(stub, group_request(2)))
        await eventually(lambda: policy.held == 2)
        with pytest.raises(ResourceExhaustedError) as caught:
            await collect(stub, group_request(2))
        assert caught.value.reason == "TOO_MANY_GROUPS"
        policy.otherwise = "4"
        policy.release.set()
        assert len(await running) == len(await collect(stub, group_request(2))) == 2


async def test_episodes_wait_for_the_sessions_that_an_environment_has() -> None:
    request = group_request(6)
    policy = PolicyDouble(script(request, {n: ["1", "4"] for n in range(6)}))
    async with (
        environment_here(max_sessions=2) as address,
        serve_inference(policy) as inference,
        rollout(inference) as stub,
    ):
        request.environment.address = address
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, Guess.open)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        found = await collect(stub, request)
        watching.cancel()
        assert [t.environment_reward for t in found] == [1.0] * 6
        assert most == 2
        assert Guess.open == 0


async def test_an_episode_that_waits_too_long_for_a_session_ends_the_group() -> None:
    policy = PolicyDouble(otherwise="hold")
    async with (
        environment_here(max_sessions=1) as address,
        serve_inference(policy) as inference,
        rollout(inference) as stub,
    ):
        with pytest.raises(ResourceExhaustedError) as caught:
            await collect(stub, group_request(2, address=address, session_wait_seconds=0.3))
        assert caught.value.reason == "NO_SESSION"
        await eventually(lambda: Guess.open == 0)
        policy.otherwise = "4"
        assert len(await collect(stub, group_request(1, address=address))) == 1


async def test_a_process_with_several_pools_asks_the_one_that_is_named(tmp_path: Path) -> None:
    doubles = {"small": PolicyDouble(), "large": PolicyDouble()}
    async with (
        serve_inference(doubles["small"]) as small,
        serve_inference(doubles["large"]) as large,
        environment_here() as environment,
    ):
        port = free_port()
        variables = {
            "PODIUM_ROLLOUT_PORT": str(port),
            "PODIUM_ROLLOUT_HEALTH_PORT": "0",
            "PODIUM_ROLLOUT_METRICS_PORT": "0",
            "PODIUM_ROLLOUT_POOLS": f"small={small},large={large}",
        }
        process = start_process("podium_rollout", variables, tmp_path)
        channel = connect(f"127.0.0.1:{port}")
        try:
            await wait_for_port(port, process)
            stub = rollout_service_pb2_grpc.RolloutServiceStub(channel)
            request = group_request(address=environment)
            for pool, asked in (("", "small"), ("large", "large"), ("small", "small")):
                for double in doubles.values():
                    double.calls.clear()
                (attempt,) = await run_policy(
                    stub,
                    request.environment,
                    [request.scenario],
                    request.policy,
                    request.sampling,
                    request.episode,
                    pool=pool,
                )
                assert attempt.succeeded(None)
                assert {name for name, double in doubles.items() if double.calls} == {asked}
            with pytest.raises(InvalidArgumentError) as raised:
                await run_policy(
                    stub,
                    request.environment,
                    [request.scenario],
                    request.policy,
                    request.sampling,
                    request.episode,
                    pool="other",
                )
            assert [violation.field for violation in raised.value.violations] == ["pool"]
        finally:
            await channel.close()
            process.kill()
            process.wait()
