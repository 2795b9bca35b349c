"""Episodes of a real OpenEnv server, in a process of its own."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.environments import Message, Scenario, Scripted, ToolCall, load, play
from podium.environments.adapters.openenv import OpenEnv
from podium.environments.serving.convert import struct
from podium.environments.types import tool_result
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.episode import Episode
from support.processes import free_port, wait_for_port
from support.rollout import PolicyDouble, group_request, script

SERVER = Path(__file__).parents[1] / "support" / "openenv_server.py"
# The package pins others so tightly that it may have an environment of its own.
PYTHON = os.environ.get("PODIUM_TEST_OPENENV_PYTHON", "")
if not PYTHON and importlib.util.find_spec("openenv"):
    PYTHON = sys.executable

pytestmark = pytest.mark.skipif(
    not PYTHON,
    reason="needs openenv 0.10.0: set PODIUM_TEST_OPENENV_PYTHON to a Python that has it",
)
SCHEMA = {
    "type": "object",
    "properties": {"digit": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["digit"],
}


@contextmanager
def served(sessions: int) -> Iterator[str]:
    port = free_port()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.Popen([PYTHON, str(SERVER), str(port), str(sessions)], env=environment)
    try:
        asyncio.run(wait_for_port(port, process))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(sessions=8) as url:
        yield url


@pytest.fixture
def url_of_one() -> Iterator[str]:
    """A server with room for one session."""
    with served(sessions=1) as url:
        yield url


def guess(digit: int, note: str = "") -> str:
    return json.dumps({"digit": digit, "note": note})


def say(text: str) -> Message:
    return Message("assistant", text)


async def begun(url: str, data: Mapping[str, Any] | None = None, **config: Any) -> OpenEnv:
    environment = OpenEnv({"url": url, "observation_field": "text", **config})
    await environment.reset(Scenario("x", {"answer": 4, **(data or {})}), 1)
    return environment


async def test_an_episode_is_the_servers(url: str) -> None:
    environment = OpenEnv({"url": url, "prompt": "Answer as JSON."})
    first = await environment.reset(Scenario("x", {"seed": 14, "episode_id": "e"}), 1)
    assert [m.role for m in first.messages] == ["system", "user"]
    assert json.loads(first.messages[-1].content)["text"] == "Guess a digit."
    result = await environment.step(say(guess(1)))
    assert (result.reward, result.terminated, result.truncated) == (-0.1, False, False)
    assert result.observation.state["observation"]["text"] == "higher"
    result = await environment.step(say(f"I think so.\n```json\n{guess(4)}\n```"))
    assert (result.reward, result.terminated, result.truncated) == (1.0, True, False)
    score = await environment.score()
    assert score.info["state"]["step_count"] == 2
    assert score.info["state"]["episode_id"] == "e"
    await environment.close()

    # The end for another reason than the task, and an answer that is only text.
    by_field = {"action_field": "digit", "action_defaults": {"note": "x"}}
    played = await play(
        OpenEnv({"url": url, "observation_field": "text", **by_field}),
        Scenario("x", {"answer": 4}),
        Scripted(["9"]),
        max_turns=8,
    )
    assert (played.terminated, played.truncated, played.turns) == (False, True, 3)
    assert played.reward == pytest.approx(-0.2)
    assert played.info["metadata"] == {"truncated": True}


@pytest.mark.long
@pytest.mark.parametrize("said", ["four", "[4]", '{"digit": "x"}', '{"other": 1}', "{" * 90_000])
async def test_an_answer_that_is_no_action_is_asked_again_or_ends(url: str, said: str) -> None:
    environment = await begun(url)
    result = await environment.step(say(said))
    assert (result.reward, result.terminated) == (-0.1, False)
    assert result.observation.messages[0].content
    assert result.metrics == {"steps": 0.0, "invalid_actions": 1.0}
    assert (await environment.step(say(guess(4)))).terminated
    await environment.close()
    ending = await begun(url, invalid="end", invalid_reward=-1.0)
    result = await ending.step(say(said))
    assert (result.reward, result.terminated, result.truncated) == (-1.0, True, False)
    await ending.close()


@pytest.mark.long
async def test_actions_can_be_tool_calls(url: str) -> None:
    environment = OpenEnv({"url": url, "tool_schema": SCHEMA, "observation_field": "text"})
    first = await environment.reset(Scenario("x", {"answer": 4}), 1)
    (tool,) = first.tools
    assert (tool.name, tool.parameters) == ("act", SCHEMA)
    call = ToolCall("call_1", "act", guess(5))
    result = await environment.step(Message("assistant", "", (call,)))
    assert result.observation.messages == [tool_result(call, "lower")]
    result = await environment.step(say(guess(4)))
    assert result.metrics["invalid_actions"] == 1
    await environment.close()


@pytest.mark.long
async def test_what_the_server_raises_fails_the_attempt_and_a_full_one_is_told_as_such(
    url_of_one: str,
) -> None:
    url = url_of_one
    environment = await begun(url)
    with pytest.raises(RuntimeError, match="EXECUTION_ERROR: the wheel came off"):
        await environment.step(say(guess(1, "raise")))
    with pytest.raises(ResourceExhaustedError, match="full") as caught:
        await begun(url)
    assert caught.value.reason == "NO_SESSION"
    await environment.close()
    await (await begun(url)).close()


@pytest.mark.long
async def test_a_step_that_was_cut_is_not_taken_for_the_next_answer(url: str) -> None:
    environment = await begun(url)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await environment.step(say(guess(1, "slow")))
    assert (await environment.score()).info["state"]["step_count"] == 1
    await environment.close()


@pytest.mark.long
async def test_a_server_that_is_not_there_or_not_right_is_named(url: str) -> None:
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        await begun("http://127.0.0.1:1")
    with pytest.raises(InvalidArgumentError, match=r"an observation here has .*text"):
        await begun(url, observation_field="words")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "127.0.0.1:8000"}, "url"),
        ({"url": "http://h", "train": 0}, "train"),
        ({"url": "http://h", "heldout": []}, "heldout"),
        ({"url": "http://h", "colour": 1}, "colour"),
    ],
)
def test_a_wrong_option_is_named(config: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        OpenEnv(config)
    assert [v.field.split(".")[2] for v in caught.value.violations] == [field]


def test_scenarios_are_seeds_or_what_the_job_lists() -> None:
    environment = OpenEnv({"url": "http://h", "train": [{"answer": 1}, {"answer": 2}]})
    assert [s.data for s in environment.scenarios("train")] == [{"answer": 1}, {"answer": 2}]
    heldout = environment.scenarios("heldout")
    assert len(heldout) == 100
    assert not {s.id for s in heldout} & {s.id for s in environment.scenarios("train")}


def test_without_websockets_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(FailedPreconditionError, match="pip install 'websockets"):
        load("openenv")({"url": "http://h"})


@pytest.mark.long
async def test_a_job_trains_on_it_by_name(url: str) -> None:
    request = group_request(max_turns=10)
    request.environment.name = "openenv"
    request.environment.config.CopyFrom(struct({"url": url, "observation_field": "text"}))
    policy = PolicyDouble(script(request, {0: [guess(1), guess(4)]}))
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    assert trajectory.stop_reason == pb.STOP_REASON_TERMINATED
    assert trajectory.environment_reward == pytest.approx(0.9)
    assert [m.content for m in trajectory.histories[0].messages][2] == "higher"
    assert trajectory.info["state"]["step_count"] == 2
