"""What models submit, in the real sandbox, under the real rollout service: graded, never dodged.

Each process here has one CPU and so one place for a program; the rest of a group is queued.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from podium.core.errors import ResourceExhaustedError
from podium.environments.serving.convert import struct
from podium.kit.rpc import connect, rpc_errors
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc
from podium.types.v1 import trajectory_pb2
from support.full import full, long
from support.namespaces import needs_namespaces
from support.processes import free_port, wait_for_port
from support.rollout import PolicyDouble, group_request, script, serve_inference

if TYPE_CHECKING:
    Stub = rollout_service_pb2_grpc.RolloutServiceAsyncStub

pytestmark = needs_namespaces

HEAD = "def f(n):\n"
RIGHT = "```python\ndef f(n):\n    return n + 1\n```"
SLEEPER = f"```python\nimport time\n{HEAD}    time.sleep(600)\n```"
TASK = {
    "function": "f",
    "text": "def f(n):\nReturn n plus one.",
    "examples": [{"input": [1], "output": 2}],
    "hidden": [{"input": [n], "output": n + 1} for n in range(20, 24)],
}
# One case of each may take half a second: a submission that hangs is given up after three.
CONFIG = {"case_seconds": 0.5, "attempts": 1}
STEP_SECONDS = 8.0
SLEEPERS = 8
"""Have the one place for longer than STEP_SECONDS together."""

CAUSES = {
    "hangs at once": "import time\ntime.sleep(600)\n" + HEAD + "    return n",
    "sleeps": "import time\n" + HEAD + "    time.sleep(600)",
    "spins": HEAD + "    while True: pass",
    "raises": HEAD + "    raise ValueError('no')",
    "raises a surrogate": HEAD + "    raise Exception('\\ud800')",
    "raises a name": HEAD + "    raise type('\\ud800', (Exception,), {})('\\x00')",
    "is a surrogate at once": "raise Exception('\\udfff')\n" + HEAD + "    return n",
    "returns a surrogate": HEAD + "    return '\\ud800'",
    "returns a key": HEAD + "    return {'\\ud800': 1}",
    "exits": "import os\n" + HEAD + "    os._exit(0)",
    "leaves": "raise SystemExit(0)\n" + HEAD + "    return n",
    "fills memory": HEAD + "    kept = []\n    while True: kept.append(bytearray(1 << 20))",
    "writes much": HEAD + "    return 'x' * 10_000_000",
    "writes at once": "import os\nfor d in range(3, 16):\n    try:\n"
    "        os.write(d, b'x' * 400_000)\n    except OSError: pass\n" + HEAD + "    return n",
    "is nested": HEAD + "    x = []\n    for _ in range(900): x = [x]\n    return x",
    "is long": HEAD + "    return 10 ** 4000",
    "dawdles": "import time\n" + HEAD + "    time.sleep(0.4)",
}


@asynccontextmanager
async def process(folder: Path, *command: str, **variables: str) -> AsyncIterator[None]:
    """`python -m command` on one CPU; its port is `PORT`."""
    place = str(min(os.sched_getaffinity(0)))
    with (folder / f"{command[0]}.log").open("wb") as log:
        child = subprocess.Popen(
            ["taskset", "-c", place, sys.executable, "-m", *command],
            env={**os.environ, **variables},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        await wait_for_port(int(variables["PORT"]), child)
        yield
    finally:
        child.terminate()
        child.wait()


@asynccontextmanager
async def rollout(inference: str, folder: Path) -> AsyncIterator[Stub]:
    """The service as a process of its own."""
    ports = [str(free_port()) for _ in range(3)]
    names = ("PORT", "HEALTH_PORT", "METRICS_PORT")
    settings = {f"PODIUM_ROLLOUT_{name}": port for name, port in zip(names, ports, strict=True)}
    settings["PODIUM_ROLLOUT_INFERENCE_ADDRESS"] = inference
    async with process(folder, "podium_rollout", PORT=ports[0], **settings):
        channel = connect(f"127.0.0.1:{ports[0]}")
        try:
            yield rollout_service_pb2_grpc.RolloutServiceStub(channel)
        finally:
            await channel.close()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The environment as a process of its own; its address."""
    port = str(free_port())
    path = "podium.environments.coding:Coding"
    async with process(folder, "podium.cli", "env", "serve", path, "--port", port, PORT=port):
        yield f"127.0.0.1:{port}"


def request(attempts: int, address: str = "", **episode: object) -> pb.CollectGroupRequest:
    made = group_request(attempts, options=CONFIG, address=address, **episode)
    made.environment.name = "coding"
    made.scenario.data.CopyFrom(struct(TASK))
    return made


async def collect(
    wanted: pb.CollectGroupRequest, replies: Sequence[str], folder: Path
) -> list[trajectory_pb2.Trajectory]:
    """What became of a group whose attempts say these, each in all of its turns."""
    policy = PolicyDouble(script(wanted, {n: [text] * 3 for n, text in enumerate(replies)}))
    async with serve_inference(policy) as inference, rollout(inference, folder) as stub:
        with rpc_errors("rollout"):
            call = stub.CollectGroup(wanted, timeout=600)
            found = [response.trajectory async for response in call]
    return sorted(found, key=lambda trajectory: trajectory.attempt)


def outcome(trajectory: trajectory_pb2.Trajectory) -> tuple[str, str, float, float]:
    """How it ended, why it failed if it did, and what trains."""
    return (
        trajectory_pb2.StopReason.Name(trajectory.stop_reason),
        trajectory.failure.message,
        trajectory.environment_reward,
        trajectory.metrics["success"],
    )


ZERO = ("STOP_REASON_TERMINATED", "", 0.1, 0.0)
ONE = ("STOP_REASON_TERMINATED", "", 1.0, 1.0)


@pytest.mark.parametrize("remote", [full(False), long(True)], ids=["built in", "served"])
async def test_those_that_hang_are_graded_however_many_are_queued(
    remote: bool, tmp_path: Path
) -> None:
    replies = [*[SLEEPER] * SLEEPERS, RIGHT]
    wanted = request(len(replies), step_timeout_seconds=STEP_SECONDS)
    if remote:
        async with served(tmp_path) as address:
            wanted.environment.address = address
            found = await collect(wanted, replies, tmp_path)
    else:
        found = await collect(wanted, replies, tmp_path)
    assert [outcome(each) for each in found] == [*[ZERO] * SLEEPERS, ONE]
    assert all(each.histories[0].tokens.spans for each in found)


@pytest.mark.parametrize("remote", [full(False), True], ids=["built in", "served"])
async def test_whatever_a_submission_causes_is_a_graded_zero(remote: bool, tmp_path: Path) -> None:
    replies = [f"```python\n{code}\n```" for code in CAUSES.values()]
    wanted = request(len(replies), max_turns=3)
    # The examples too: what failed is told.
    wanted.environment.config.update({"attempts": 3})
    if remote:
        async with served(tmp_path) as address:
            wanted.environment.address = address
            found = await collect(wanted, replies, tmp_path)
    else:
        found = await collect(wanted, replies, tmp_path)
    assert {name: outcome(each) for name, each in zip(CAUSES, found, strict=True)} == dict.fromkeys(
        CAUSES, ZERO
    )


async def test_one_that_is_slow_but_never_too_slow_is_graded_by_the_end_of_its_step(
    tmp_path: Path,
) -> None:
    wanted = request(1, step_timeout_seconds=STEP_SECONDS)
    cases = [{"input": [n], "output": n + 1} for n in range(100)]
    wanted.scenario.data.update({"hidden": cases})
    (found,) = await collect(wanted, [f"```python\n{CAUSES['dawdles']}\n```"], tmp_path)
    assert outcome(found) == ZERO


async def test_a_queue_that_is_too_long_ends_the_group_for_another_time(tmp_path: Path) -> None:
    """Bounded, and not the attempts' failure: whoever asks again finds it shorter."""
    wanted = request(SLEEPERS, session_wait_seconds=3.0)
    with pytest.raises(ResourceExhaustedError, match="session_wait_seconds") as caught:
        await collect(wanted, [SLEEPER] * SLEEPERS, tmp_path)
    assert caught.value.reason == "QUEUED_TOO_LONG"
