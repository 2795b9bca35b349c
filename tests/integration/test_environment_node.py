"""The example in JavaScript, run by Node.js and trained on through the rollout's own code."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from podium.core import errors
from podium.environment.v1 import environment_service_pb2 as environment_pb
from podium.environment.v1 import environment_service_pb2_grpc
from podium.environments.serving.convert import struct, unstruct
from podium.kit.rpc import connect, rpc_errors
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.group import GroupRunner
from support.cutting_proxy import CuttingProxy
from support.processes import free_port, wait_for_port
from support.rollout import PolicyDouble, group_request, script
from support.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "environment_node"
NODE = shutil.which("node")


def _installed() -> bool:
    if NODE is None:
        return False
    found = "require.resolve('@grpc/grpc-js'); require.resolve('@grpc/proto-loader')"
    return subprocess.run([NODE, "-e", found], cwd=EXAMPLE, capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(
    not _installed(),
    reason=f"needs Node.js and, in {EXAMPLE.name} or NODE_PATH, npm install --no-package-lock",
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    port = free_port()
    assert NODE is not None
    command = [NODE, "server.js", "--port", str(port), "--max-sessions", "2"]
    process = subprocess.Popen(command, cwd=EXAMPLE)
    try:
        asyncio.run(wait_for_port(port, process))
        yield port
    finally:
        process.terminate()
        assert process.wait(120) == 0


def address(port: int) -> str:
    return f"127.0.0.1:{port}"


async def collect(
    address: str,
    said: Mapping[int, Sequence[str]] | PolicyDouble,
    *,
    attempts: int = 1,
    **options: object,
) -> list[pb.Trajectory]:
    request = group_request(attempts, address=address, max_turns=4, options=options)
    request.environment.name = "guess_js"
    request.scenario.data.CopyFrom(struct({"answer": 42}))
    policy = said if isinstance(said, PolicyDouble) else PolicyDouble(script(request, said))
    environments = Environments(resume_seconds=10)
    try:
        collector = GroupRunner(environments, {"default": policy}, max_groups=1)
        return sorted([t async for t in collector.collect(request)], key=lambda t: t.attempt)
    finally:
        await environments.close()


async def test_episodes_wait_for_the_servers_two_slots_and_are_scored(port: int) -> None:
    lines = {n: ["50", "40", "It is 42"] for n in range(4)} | {4: ["50", "no idea", "45", "44"]}
    found = await collect(address(port), lines, attempts=5)
    assert [t.stop_reason for t in found[:4]] == [pb.STOP_REASON_TERMINATED] * 4
    assert [t.environment_reward for t in found[:4]] == [1.0] * 4
    assert [m.content for m in found[0].histories[0].messages] == [
        "Guess a number below 100.",
        "50",
        "lower",
        "40",
        "higher",
        "It is 42",
    ]
    assert unstruct(found[0].info) == {"guess": 42}
    cut = found[4]
    assert cut.stop_reason == pb.STOP_REASON_MAX_TURNS
    assert cut.environment_reward == pytest.approx(0.49)
    assert (cut.metrics["success"], cut.metrics["nearest"]) == (0, 2)


@pytest.mark.long
async def test_a_connection_that_breaks_changes_nothing(port: int) -> None:
    proxy = CuttingProxy(port)
    async with proxy.running():
        policy = PolicyDouble(otherwise="hold")
        collecting = asyncio.create_task(collect(proxy.address, policy))
        await eventually(lambda: policy.held == 1)
        proxy.cut()
        policy.otherwise = "42"
        policy.release.set()
        (found,) = await collecting
    assert (found.stop_reason, found.environment_reward) == (pb.STOP_REASON_TERMINATED, 1)


@pytest.mark.long
async def test_a_request_sent_again_is_answered_from_memory(port: int) -> None:
    async with connect(address(port)) as channel:
        stub = environment_service_pb2_grpc.EnvironmentServiceStub(channel)

        async def ask(call: object, **request: object) -> environment_pb.SessionResponse:
            with rpc_errors("environment"):
                await call.write(environment_pb.SessionRequest(**request))  # type: ignore
                return await call.read()  # type: ignore

        scenario = pb.Scenario(id="x", data=struct({"answer": 42}))
        guess = environment_pb.StepRequest(action=pb.Message(role=pb.ROLE_ASSISTANT, content="1"))
        opened = environment_pb.OpenRequest(session_id="again", wait_seconds=10)
        one = stub.Session()
        assert not (await ask(one, open=opened)).open.resumed
        await ask(one, sequence=1, reset=environment_pb.ResetRequest(scenario=scenario))
        first = await ask(one, sequence=2, step=guess)
        two = stub.Session()
        assert (await ask(two, open=opened)).open.last_sequence == 2
        with pytest.raises(errors.AbortedError), rpc_errors("environment"):
            await one.read()
        assert await ask(two, sequence=2, step=guess) == first
        with pytest.raises(errors.OutOfRangeError) as caught:
            await ask(two, sequence=4, step=guess)
        assert caught.value.reason == "SEQUENCE_OUT_OF_ORDER"
        three = stub.Session()
        await ask(three, open=opened)
        assert (await ask(three, sequence=3, close=environment_pb.CloseRequest())).HasField("close")
        opened.resume = True
        with pytest.raises(errors.NotFoundError) as missing:
            await ask(stub.Session(), open=opened)
        assert missing.value.reason == "SESSION_NOT_FOUND"


async def test_a_wrong_option_and_a_wrong_scenario_are_named(port: int) -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        await collect(address(port), {0: ["1"]}, colour="red")
    assert [v.field for v in caught.value.violations] == ["environment.config.colour"]


async def test_scenarios_are_listed(port: int) -> None:
    environments = Environments()
    spec = spec_pb2.EnvironmentSpec(name="guess_js", address=address(port))
    train, token = await environments.scenarios(spec, "train", 50, "")
    rest, end = await environments.scenarios(spec, "train", 50, token)
    assert [s.id for s in [*train, *rest]] == [f"number-{n}" for n in range(80)]
    assert not end
    assert unstruct(train[7].data) == {"answer": 7}
    with pytest.raises(errors.NotFoundError, match="no split test"):
        await environments.scenarios(spec, "test", 0, "")
    await environments.close()
