"""Episodes with a real MCP server, in a process of its own, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.environments import Message, Scenario, ToolCall, load
from podium.environments.adapters.mcp import Mcp
from podium.environments.adapters.mcp_session import McpServer, McpSession, ServerGoneError
from podium.environments.serving.convert import struct
from podium.environments.types import StepResult
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.episode import Episode
from support.full import full
from support.processes import free_port, wait_for_port
from support.rollout import PolicyDouble, group_request, script

pytestmark = pytest.mark.timeout(600)

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
STDIO = {"command": [sys.executable, str(SERVER)]}
SLOW_MACHINE = {"open_seconds": 300, "call_seconds": 300}
TASK = {"task": "Note the milk."}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)])
    try:
        asyncio.run(wait_for_port(port, process))
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_MCP_COMMANDS", f"other, {sys.executable}")


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, url: str) -> dict[str, Any]:
    return STDIO if request.param == "stdio" else {"url": url}


@asynccontextmanager
async def begun(
    server: dict[str, Any], data: dict[str, Any] | None = None, **config: Any
) -> AsyncIterator[Mcp]:
    environment = Mcp({"server": server, **SLOW_MACHINE, **config})
    try:
        await environment.reset(Scenario("x", {**TASK, **(data or {})}), 1)
        yield environment
    finally:
        await environment.close()


def calls(*made: tuple[str, Any]) -> Message:
    return Message(
        "assistant",
        tool_calls=[
            ToolCall(f"c{n}", name, text if isinstance(text, str) else json.dumps(text))
            for n, (name, text) in enumerate(made)
        ],
    )


def example(tool: str, **arguments: str) -> dict[str, Any]:
    made = {"tool": tool, "arguments": arguments, "result": "two litres"}
    return {"task": "How much milk?", "calls": [made], "answer": "Two litres."}


def read(result: StepResult) -> list[str]:
    return [message.content for message in result.observation.messages]


async def test_the_servers_tools_are_the_agents(server: dict[str, Any]) -> None:
    environment = Mcp({"server": server, **SLOW_MACHINE})
    first = await environment.reset(Scenario("x", TASK), 1)
    assert [m.role for m in first.messages] == ["system", "user"]
    assert first.messages[0].content.endswith("\n\nKeeps notes.")
    assert first.messages[1].content == "Note the milk."
    tools = {tool.name: tool for tool in first.tools}
    assert list(tools)[:3] == ["add_note", "read_note", "list_notes"]
    assert list(tools)[-1] == "finish"
    assert tools["read_note"].description == "Reads a note."
    assert tools["read_note"].parameters["properties"]["title"]["type"] == "string"
    # All calls of a turn, in order; each with its own result.
    result = await environment.step(
        calls(
            ("add_note", {"title": "milk", "text": "two litres"}),
            ("read_note", {"title": "milk"}),
            ("read_note", {"title": "eggs"}),
        )
    )
    assert read(result)[:2] == ["added 'milk'", "two litres"]
    assert read(result)[2].startswith("error: ")
    assert "there is no note 'eggs'" in read(result)[2]
    assert [m.tool_call_id for m in result.observation.messages] == ["c0", "c1", "c2"]
    assert result.metrics == {"tool_calls": 3.0, "tool_errors": 1.0, "finished": 0.0}
    assert not result.terminated
    # What comes behind `finish` is not called any more.
    result = await environment.step(calls(("finish", {"answer": "done"}), ("crash", {})))
    assert (result.terminated, result.observation.messages) == (True, [])
    score = await environment.score()
    assert score.reward == 0
    assert "success" not in score.metrics
    assert score.info == {"result": "done"}
    await environment.close()


async def test_each_episode_has_a_session_of_its_own(server: dict[str, Any]) -> None:
    async with begun(server) as one, begun(server) as other:
        await one.step(calls(("add_note", {"title": "mine", "text": "x"})))
        assert read(await other.step(calls(("list_notes", {})))) == ['{"result": []}']
        assert "mine" in read(await one.step(calls(("list_notes", {}))))[0]


WRONG_CALLS: tuple[tuple[tuple[str, Any], str], ...] = (
    (("nothing", {}), "error: no tool 'nothing'; there are add_note, read_note"),
    (("read_note", "{"), "error: the arguments are no JSON"),
    (("read_note", "[1]"), "error: the arguments are no JSON object"),
    (("read_note", "[" * 100_000), "error: the arguments are no JSON"),
    (("read_note", {"titel": "x"}), "error: Error executing tool read_note"),
    (("finish", {"answer": 3}), 'error: give {"answer": "your answer"}'),
)


async def test_what_goes_wrong_with_a_call_is_its_result(server: dict[str, Any]) -> None:
    async with begun(server) as environment:
        result = await environment.step(calls(*(call for call, _ in WRONG_CALLS)))
        for text, (call, told) in zip(read(result), WRONG_CALLS, strict=True):
            assert text.startswith(told), call
        assert not result.terminated
        assert result.metrics["tool_errors"] == len(WRONG_CALLS)
        # And the session goes on.
        result = await environment.step(calls(("add_note", {"title": "a", "text": "b"})))
        assert read(result) == ["added 'a'"]


@pytest.mark.parametrize("server", [full("stdio"), "http"], indirect=True)
async def test_a_call_that_takes_too_long_is_given_up(server: dict[str, Any]) -> None:
    async with begun(server, call_seconds=6) as environment:
        asked = (("sleep", {"seconds": 600}), ("add_note", {"title": "a", "text": "b"}))
        assert read(await environment.step(calls(*asked))) == [
            "error: no answer within 6 seconds",
            "added 'a'",
        ]


async def test_a_long_result_is_cut(url: str) -> None:
    async with begun({"url": url}, result_characters=100) as environment:
        (text,) = read(await environment.step(calls(("long_text", {"length": 5000}))))
        assert text == "x" * 100 + "… (4900 characters left out)"


async def test_a_message_that_calls_nothing_is_the_answer(url: str) -> None:
    async with begun({"url": url}, {"answer": ["Forty-two", "42"]}, finish="") as environment:
        unread = Message("assistant", "call: x {", malformed_calls=["no JSON"])
        result = await environment.step(unread)
        assert not result.terminated
        assert result.observation.messages
        assert (await environment.step(Message("assistant", "42."))).terminated
        score = await environment.score()
    assert (score.reward, score.metrics["success"]) == (1.0, 1.0)
    assert score.info == {"result": "42.", "expected": ["Forty-two", "42"]}


@pytest.mark.parametrize(
    ("said", "match", "reward"),
    [("It is 42!", "exact", 0.0), ("It is 42!", "contains", 1.0), ("It is 420!", "contains", 0.0)],
)
async def test_an_answer_is_matched_as_the_options_say(
    url: str, said: str, match: str, reward: float
) -> None:
    async with begun({"url": url}, {"answer": "42"}, match=match) as environment:
        await environment.step(calls(("finish", {"answer": said})))
        assert (await environment.score()).reward == reward


async def test_a_check_looks_at_what_the_server_holds_in_the_end(url: str) -> None:
    check = {"tool": "read_note", "arguments": {"title": "milk"}, "contains": "litres"}
    for text, reward in (("two litres", 1.0), ("much", 0.0), ("", 0.0)):
        async with begun({"url": url}, {"check": check}) as environment:
            if text:
                await environment.step(calls(("add_note", {"title": "milk", "text": text})))
            # An episode that was cut is looked at as it stands.
            score = await environment.score()
            assert (score.reward, score.metrics["success"]) == (reward, reward)
            assert text in score.info["check"]


async def test_a_server_that_dies_fails_the_attempt_and_leaves_no_process() -> None:
    async with begun(STDIO) as environment:
        with pytest.raises(ServerGoneError, match="ended the session"):
            await environment.step(calls(("crash", {})))
        with pytest.raises(ServerGoneError, match="ended the session"):
            await environment.step(calls(("list_notes", {})))


async def test_over_http_a_server_that_dies_ends_the_call() -> None:
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVER), str(port)])
    try:
        await wait_for_port(port, process)
        async with begun({"url": f"http://127.0.0.1:{port}/mcp"}) as environment:
            asleep = asyncio.create_task(environment.step(calls(("sleep", {"seconds": 600}))))
            await asyncio.sleep(0.5)
            process.kill()
            process.wait()
            # Some ends are told as an error of the call; the next one meets nobody.
            with suppress(ServerGoneError):
                await asleep
            with pytest.raises(ServerGoneError):
                await environment.step(calls(("list_notes", {})))
    finally:
        process.kill()
        process.wait()


async def test_closing_ends_the_servers_process(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    shell = f"echo $$ > {marker}; exec {sys.executable} {SERVER}"
    session = McpSession(McpServer(command=["sh", "-c", shell]))
    await session.open(60)
    pid = int(marker.read_text())
    os.kill(pid, 0)
    await session.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_servers_process_sees_no_secret_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_SECRET", "hunter2")
    async with begun({**STDIO, "env": {"MINE": "yes"}}) as environment:
        asked = [("environment", {"name": name}) for name in ("PODIUM_SECRET", "MINE")]
        assert read(await environment.step(calls(*asked))) == ["(not set)", "yes"]


async def test_only_chosen_tools_are_on_offer(url: str) -> None:
    environment = Mcp(
        {"server": {"url": url}, "tools": ["list_notes"], "finish": "done", **SLOW_MACHINE}
    )
    first = await environment.reset(Scenario("x", TASK), 1)
    assert [tool.name for tool in first.tools] == ["list_notes", "done"]
    (text,) = read(await environment.step(calls(("add_note", {"title": "a", "text": "b"}))))
    assert text == "error: no tool 'add_note'; there are list_notes, done"
    await environment.close()


@pytest.mark.parametrize(
    ("config", "data", "told"),
    [
        ({}, {"task": ""}, "scenario.data.task: got ''; allowed are texts"),
        ({"task": "question"}, {}, "scenario.data.question: got None; allowed are texts"),
        ({}, {"answer": 3}, "scenario.data.answer: got 3; allowed are texts"),
        ({}, {"check": "x"}, "scenario.data.check: got 'x'; allowed are objects of tool"),
        ({}, {"check": {"tool": "x"}}, "scenario.data.check.contains: got None"),
        ({"tools": ["fly"]}, {}, "environment.config.tools: got fly; the server has add_note"),
        ({"finish": "crash"}, {}, "environment.config.finish: got 'crash', which the server has"),
        (
            {"tools": ["add_note"], "examples": [example("finish")]},
            {},
            'environment.config.examples.0.calls.0.tool: got "finish", no tool on offer; there are '
            "add_note",
        ),
        (
            {"examples": [example("read_note", title="x")]},
            {"examples": [example("read_note", titel="x")]},
            "scenario.data.examples.0.calls.0.arguments.title: is missing",
        ),
        ({}, {"examples": [example("x")] * 17}, "scenario.data.examples: got 17 examples"),
        ({"examples": [example("x")] * 17}, {}, "environment.config.examples: got 17 examples"),
    ],
)
async def test_a_wrong_scenario_or_option_is_named(
    url: str, config: dict[str, Any], data: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        async with begun({"url": url}, data, **config):
            pass
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({}, "set either command or url"),
        ({"command": ["x"], "url": "http://x"}, "set either command or url"),
        ({"url": "ftp://x"}, "got 'ftp://x'; allowed are URLs such as"),
        ({"url": "http://x", "env": {"A": "b"}}, "env belongs to command"),
        ({"url": "http://x", "path": "y"}, "environment.config.server.path: unknown option"),
    ],
)
def test_a_wrong_server_is_named(server: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Mcp({"server": server})
    assert told in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="scenarios: is missing"):
        Mcp({"server": {"url": "http://x"}}).listed("train")


async def test_a_server_that_cannot_be_used_is_named_with_its_last_words() -> None:
    broken = {"command": [sys.executable, "-c", "raise SystemExit('no licence')"]}
    with pytest.raises(UnavailableError, match=r"cannot be used: .*no licence") as caught:
        async with begun(broken):
            pass
    assert caught.value.reason == "MCP_SERVER_UNAVAILABLE"
    silent = {"command": [sys.executable, "-c", "import time; time.sleep(600)"]}
    with pytest.raises(UnavailableError, match=r"no answer within 0\.5 seconds"):
        async with begun(silent, open_seconds=0.5):
            pass
    with pytest.raises(UnavailableError, match="cannot be used"):
        async with begun({"url": f"http://127.0.0.1:{free_port()}/mcp"}):
            pass


async def test_a_program_is_started_only_with_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed in ("", "python", f"{sys.executable}x"):
        monkeypatch.setenv("PODIUM_MCP_COMMANDS", allowed)
        with pytest.raises(FailedPreconditionError, match="may not be started here") as caught:
            Mcp({"server": STDIO})
        assert caught.value.reason == "COMMAND_NOT_ALLOWED"
    monkeypatch.setenv("PODIUM_MCP_COMMANDS", "*")
    with pytest.raises(InvalidArgumentError, match="'no-such-program'; no program that can be run"):
        async with begun({"command": ["no-such-program"]}):
            pass


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'mcp>=2\.3'") as caught:
        load("mcp")({"server": {"url": "http://x"}})
    assert caught.value.reason == "PACKAGE_MISSING"


async def test_the_rollout_service_plays_it() -> None:
    request = group_request(tool_format=spec_pb2.TOOL_FORMAT_TEXT, step_timeout_seconds=300)
    request.environment.name = "mcp"
    request.environment.config.CopyFrom(struct({"server": STDIO, **SLOW_MACHINE}))
    request.scenario.data.CopyFrom(struct({**TASK, "answer": "milk"}))
    lines = ['call: add_note {"title": "milk", "text": "x"}', 'call: finish {"answer": "Milk"}']
    policy = PolicyDouble(script(request, {0: lines}))
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    assert trajectory.stop_reason == pb.STOP_REASON_TERMINATED, trajectory.failure
    assert trajectory.environment_reward == 1.0
    assert dict(trajectory.metrics)["tool_calls"] == 2
    assert [tool.name for tool in trajectory.histories[0].tools][-1] == "finish"
    assert trajectory.histories[0].messages[3].content == "added 'milk'"


async def test_examples_are_earlier_turns_that_call_nothing_and_never_train(url: str) -> None:
    request = group_request(tool_format=spec_pb2.TOOL_FORMAT_TEXT, step_timeout_seconds=300)
    request.environment.name = "mcp"
    given = {"examples": [example("read_note", title="milk")], "finish": "", **SLOW_MACHINE}
    request.environment.config.CopyFrom(struct({"server": {"url": url}, **given}))
    request.scenario.data.CopyFrom(struct({**TASK, "answer": "none"}))
    lines = ["call: list_notes {}", "None."]
    policy = PolicyDouble(script(request, {0: lines}))
    (trajectory,) = await Episode(request, 0, Environments(), policy).run()
    assert trajectory.environment_reward == 1.0, trajectory.failure
    history = trajectory.histories[0]
    assert [message.role for message in history.messages] == [
        *(pb.ROLE_SYSTEM, pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_TOOL, pb.ROLE_ASSISTANT),
        *(pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_TOOL, pb.ROLE_ASSISTANT),
    ]
    made = [call.id for each in history.messages for call in each.tool_calls]
    assert (made, trajectory.metrics["tool_calls"]) == (["call00000", "call00001"], 1)
    # The example's note is not there, and only what was sampled trains.
    assert history.messages[7].content == '{"result": []}'
    assert [span.length for span in history.tokens.spans] == [len(line) + 1 for line in lines]


async def test_a_scenarios_own_examples_take_the_place_of_the_options(url: str) -> None:
    config = {"server": {"url": url}, "examples": [example("list_notes")], **SLOW_MACHINE}
    for own, shown in ((None, 1), ([], 0), ([example("read_note", title="a")] * 2, 2)):
        environment = Mcp(config)
        seen = await environment.reset(Scenario("x", {**TASK, "examples": own}), 1)
        await environment.close()
        assert [message.role for message in seen.messages] == [
            "system",
            *["user", "assistant", "tool", "assistant"] * shown,
            "user",
        ]
