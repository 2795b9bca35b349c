"""Episodes of the real verifiers 0.4, served from an interpreter of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.environments import load
from podium.environments.serving.convert import struct, unstruct
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.group import GroupRunner
from support.processes import free_port, wait_for_port
from support.rollout import PolicyDouble, group_request, script

ROOT = Path(__file__).parents[2]
TASKSETS = ROOT / "tests" / "support"
PYTHON = os.environ.get("PODIUM_TEST_VERIFIERS_PYTHON", "")
if not PYTHON and importlib.util.find_spec("verifiers"):
    PYTHON = sys.executable
SUMS = {"env": {"taskset": {"id": "vf_arithmetic"}}, "heldout": 5}
CALL = '<tool_call>{"name": "calculator_add", "arguments": {"a": 11, "b": 1}}</tool_call>'

needs_verifiers = pytest.mark.skipif(
    not PYTHON,
    reason="needs verifiers 0.4.0, uv and what Podium needs: set PODIUM_TEST_VERIFIERS_PYTHON",
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port = free_port()
    command = [PYTHON, "-m", "podium.cli", "env", "serve", "verifiers", "--port", str(port)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "libs"), str(TASKSETS)]),
        # Its harness is a script that uv runs.
        "PATH": os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]]),
    }
    process = subprocess.Popen(command, env=environment)
    try:
        asyncio.run(wait_for_port(port, process))
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@asynccontextmanager
async def environments() -> AsyncIterator[Environments]:
    opened = Environments()
    try:
        yield opened
    finally:
        await opened.close()


def spec(address: str, config: Mapping[str, Any] = SUMS) -> spec_pb2.EnvironmentSpec:
    return spec_pb2.EnvironmentSpec(name="verifiers", address=address, config=struct(config))


async def collect(
    address: str, lines: Mapping[int, Sequence[str]], **episode: float
) -> list[pb.Trajectory]:
    """Attempts at `What is 11 + 1?`."""
    request: rollout_pb.CollectGroupRequest = group_request(
        len(lines), step_timeout_seconds=90, **episode
    )
    request.environment.CopyFrom(spec(address))
    async with environments() as opened:
        found, _ = await opened.scenarios(request.environment, "train", 0, "")
        (task,) = [s for s in found if unstruct(s.data)["prompt"] == "What is 11 + 1?"]
        request.scenario.CopyFrom(task)
        collector = GroupRunner(
            opened, {"default": PolicyDouble(script(request, lines))}, max_groups=1
        )
        return sorted([t async for t in collector.collect(request)], key=lambda t: t.attempt)


@needs_verifiers
async def test_episodes_are_run_and_scored_by_verifiers(address: str) -> None:
    found = await collect(address, {0: [CALL, "It is 12"], 1: ["Perhaps 13"], 2: ["I explode"]})
    right, wrong, broken = found
    assert [t.stop_reason for t in found] == [
        pb.STOP_REASON_TERMINATED,
        pb.STOP_REASON_TERMINATED,
        pb.STOP_REASON_FAILED,
    ]
    # 2 x right + 0.5, as the taskset weighs them.
    assert (right.environment_reward, wrong.environment_reward) == (2.5, 0.5)
    assert (right.metrics["right"], right.metrics["tried"]) == (1, 0.5)
    assert unstruct(right.info) == {"stop_condition": "agent_completed"}
    assert "the jury is out" in broken.failure.message
    # The tool was called in verifiers' own process, and each message is in the record once.
    (history,) = right.histories
    assert [tool.name for tool in history.tools] == ["calculator_add"]
    assert [(m.role, m.content) for m in history.messages] == [
        (pb.ROLE_SYSTEM, "Answer with a number."),
        (pb.ROLE_USER, "What is 11 + 1?"),
        (pb.ROLE_ASSISTANT, ""),
        (pb.ROLE_TOOL, "12"),
        (pb.ROLE_ASSISTANT, "It is 12"),
    ]
    assert len(history.tokens.spans) == 2


@pytest.mark.long
@needs_verifiers
async def test_an_episode_that_was_cut_is_scored_by_its_task(address: str) -> None:
    (found,) = await collect(address, {0: [CALL]}, max_turns=1)
    assert found.stop_reason == pb.STOP_REASON_MAX_TURNS
    assert found.environment_reward == 0.5
    assert (found.metrics["right"], found.metrics["turns"]) == (0, 1)


@pytest.mark.long
@needs_verifiers
async def test_the_tasks_are_split_once_and_for_all(address: str) -> None:
    async with environments() as opened:
        train, _ = await opened.scenarios(spec(address), "train", 0, "")
        heldout, _ = await opened.scenarios(spec(address), "heldout", 0, "")
        again, _ = await opened.scenarios(spec(address), "heldout", 0, "")
        few = spec(address, {**SUMS, "heldout": 20})
        with pytest.raises(InvalidArgumentError, match="got 20; the taskset has 20 tasks"):
            await opened.scenarios(few, "train", 0, "")
    assert (len(train), len(heldout)) == (15, 5)
    assert heldout == again
    assert len({s.id for s in [*train, *heldout]}) == 20


@pytest.mark.long
@needs_verifiers
@pytest.mark.parametrize(
    "env",
    [
        {"taskset": {"id": "no_such_taskset"}},
        {"taskset": {"id": "vf_arithmetic", "colour": 1}},
        {"taskset": {"id": "vf_arithmetic"}, "agent": {"harness": {"id": "no_such"}}},
        {},
    ],
)
async def test_a_wrong_option_is_named(address: str, env: Mapping[str, Any]) -> None:
    async with environments() as opened:
        with pytest.raises(InvalidArgumentError) as caught:
            await opened.scenarios(spec(address, {"env": env}), "train", 0, "")
    assert [v.field for v in caught.value.violations] == ["environment.config.env"]


@pytest.mark.long
@needs_verifiers
async def test_the_check_finds_a_taskset_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "vf_here.py").write_text((TASKSETS / "vf_arithmetic.py").read_text())
    shutil.copy(TASKSETS / "vf_calculator.py", tmp_path)
    command = [
        *(PYTHON, "-P", "-m", "podium.cli", "env", "check", "verifiers", "--timeout", "1"),
        *("--set", "env={taskset: {id: vf_here}}", "--set", "heldout=5"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "libs"),
        "PATH": os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]]),
    }
    checked = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    said = (await checked.communicate())[0].decode()
    # What its harness takes to start is not what is asked here.
    assert "15 in train, 5 in heldout" in said


@needs_verifiers
async def test_a_package_for_verifiers_of_before_is_told_so(address: str) -> None:
    async with environments() as opened:
        with pytest.raises(InvalidArgumentError, match=r"vf_old has load_environment.* 0\.1"):
            await opened.scenarios(
                spec(address, {"env": {"taskset": {"id": "vf_old"}}}), "train", 0, ""
            )


@needs_verifiers
async def test_a_taskset_that_raises_is_no_defect_of_the_server(address: str) -> None:
    async with environments() as opened:
        config = {"env": {"taskset": {"id": "vf_broken"}}}
        with pytest.raises(FailedPreconditionError) as caught:
            await opened.scenarios(spec(address, config), "train", 0, "")
    assert caught.value.reason == "TASKSET_FAILED"
    assert "LookupError: the corpus is not here" in caught.value.message


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(FailedPreconditionError, match="pip install 'verifiers") as caught:
        load("verifiers")(SUMS)
    assert json.loads(json.dumps(caught.value.metadata))["requirement"] == "verifiers>=0.4,<0.5"
