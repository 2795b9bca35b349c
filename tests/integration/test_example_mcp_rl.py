"""examples/mcp_rl: its job, its tasks, and its server, a real MCP server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from podium.cli.job.submit import load
from podium.core.contract import parse_yaml
from podium.environments import Message, ToolCall, play
from podium.environments.adapters.mcp import Mcp
from podium.environments.agent import Agent
from podium.environments.serving.convert import unstruct
from podium.environments.types import Observation
from podium.types.v1 import spec_pb2
from support.cli import invoke
from support.examples import example
from support.fake_judge import completion, fake_judge
from support.processes import free_port, wait_for_port

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "mcp_rl"


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The job's own, for this interpreter and wherever the tests run."""
    monkeypatch.setenv("PODIUM_SCENARIOS_DIR", str(ROOT))
    monkeypatch.setenv("PODIUM_MCP_COMMANDS", sys.executable)
    parsed = parse_yaml((EXAMPLE / "job.yaml").read_text(), spec_pb2.JobSpec)
    assert parsed.violations == []
    job = parsed.message
    assert job.reward.scorers[0].kind == spec_pb2.SCORER_KIND_RULER
    read = unstruct(job.environment.config)
    program, script = read["server"]["command"]
    assert program == "python3"
    read["server"]["command"] = [sys.executable, str(ROOT / script)]
    return read | {"open_seconds": 300, "call_seconds": 300}


class Customer(Agent):
    """Buys what one held-out task asks for."""

    turns = (("search_books", {"author": "Brandt"}), ("reserve_book", {"book_id": "b5"}))

    async def act(self, observation: Observation) -> Message:
        turn = self.seed
        self.seed += 1
        if turn == len(self.turns):
            return Message("assistant", "It is kept for you.")
        name, arguments = self.turns[turn]
        if name == "reserve_book":
            assert (
                observation.messages[-1].content == "b5: The Lighthouse Accounts, by Oskar Brandt"
            )
            arguments = {**arguments, "customer": "Mira"}
        return Message("assistant", tool_calls=[ToolCall("c", name, json.dumps(arguments))])


async def test_a_task_of_the_job_is_done_on_the_real_server(config: dict[str, Any]) -> None:
    environment = Mcp(config)
    assert len(environment.listed("train")) == 8
    tasks = {scenario.id: scenario for scenario in environment.listed("heldout")}
    assert len(tasks) == 3
    played = await play(environment, tasks["h-brandt"], Customer(0), max_turns=6)
    assert played.info["check"] == "b5: Mira"
    assert (played.reward, played.terminated) == (1.0, True)
    assert played.metrics["tool_calls"] == 2


class Asker(Agent):
    """Asks one tool for the part of the task, and says what it hears."""

    def __init__(self, tool: str, part: str) -> None:
        super().__init__(0)
        self.call = ToolCall("c", tool, json.dumps({"part": part}))

    async def act(self, observation: Observation) -> Message:
        heard = observation.messages[-1]
        if heard.role == "tool":
            return Message("assistant", heard.content)
        return Message("assistant", tool_calls=[self.call])


@pytest.fixture
def stockroom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of stockroom.yaml, with its tasks."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    rows = map(json.dumps, example("mcp_rl/stockroom_tasks").tasks())
    (tmp_path / "stockroom.jsonl").write_text("\n".join(rows))
    monkeypatch.setenv("PODIUM_SCENARIOS_DIR", str(tmp_path))
    job = load(str(EXAMPLE / "stockroom.yaml"), ()).spec
    return unstruct(job.environment.config) | {"open_seconds": 300, "call_seconds": 300}


def test_no_part_of_the_stockroom_is_asked_for_in_training_and_held_out(
    stockroom: dict[str, Any],
) -> None:
    fact = example("mcp_rl/stockroom").fact
    parts: dict[str, list[str]] = {}
    for split in ("train", "heldout"):
        parts[split] = []
        for task in Mcp(stockroom).listed(split):
            what, _, part = task.id.partition("-")
            assert part in task.data["task"]
            assert task.data["answer"] == str(fact(what, part))
            parts[split].append(part)
    for shown in stockroom["examples"]:
        (call,) = shown["calls"]
        what, part = call["tool"].removeprefix("get_"), call["arguments"]["part"]
        assert call["result"] == shown["answer"] == str(fact(what, part))
        parts["train"].append(part)
    assert (len(parts["train"]), len(parts["heldout"])) == (147, 100)
    together = parts["train"] + parts["heldout"]
    assert len(set(together)) == len(together)


async def test_only_what_the_right_tool_of_the_stockroom_says_is_paid(
    stockroom: dict[str, Any],
) -> None:
    task = next(each for each in Mcp(stockroom).listed("heldout") if each.id.startswith("shelf"))
    part = task.id.removeprefix("shelf-")
    asked = (("get_shelf", part), ("get_price", part), ("get_shelf", "A1"))
    port = free_port()
    process = subprocess.Popen([sys.executable, str(EXAMPLE / "stockroom.py"), str(port)])
    try:
        await wait_for_port(port, process)
        options = stockroom | {"server": {"url": f"http://127.0.0.1:{port}/mcp"}}
        paid = [
            (await play(Mcp(options), task, Asker(*each), max_turns=2)).reward for each in asked
        ]
    finally:
        process.kill()
        process.wait()
    assert paid == [1.0, 0.0, 0.0]


async def test_tasks_are_generated_from_the_real_servers_tools(tmp_path: Path) -> None:
    def write(request: dict[str, Any]) -> Any:
        prompt = request["messages"][1]["content"]
        tools = re.findall(r'^  "name": "(\w+)"', prompt, re.MULTILINE)
        assert tools == ["search_books", "get_price", "reserve_book", "list_reservations"]
        tasks = [
            {"task": f"Write about {text}", "difficulty": n} for n, text in enumerate("abc", 1)
        ]
        return completion(json.dumps({"scenarios": tasks}))

    with fake_judge() as api:
        api.then(write)
        result = await invoke(
            *("scenarios", "generate", "-n", "3", "--out", "tasks.jsonl"),
            *("--command", f"{sys.executable} {EXAMPLE / 'server.py'}"),
            cwd=tmp_path,
            environment={"OPENAI_BASE_URL": api.base_url},
        )
    assert result.code == 0, result.err
    assert "4 tools, 0 resources" in result.err
    assert result.out == "tasks.jsonl: 2 train, 1 heldout\n"
