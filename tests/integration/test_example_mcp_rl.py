"""examples/mcp_rl: its job, its tasks, and its server, a real MCP server."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from podium.core.contract import parse_yaml
from podium.environments import Message, ToolCall, play
from podium.environments.adapters.mcp import Mcp
from podium.environments.agent import Agent
from podium.environments.serving.convert import unstruct
from podium.environments.types import Observation
from podium.types.v1 import spec_pb2
from support.cli import podium
from support.fake_judge import completion, fake_judge

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
        result = await podium(
            *("scenarios", "generate", "-n", "3", "--out", "tasks.jsonl"),
            *("--command", f"{sys.executable} {EXAMPLE / 'server.py'}"),
            cwd=tmp_path,
            environment={"OPENAI_BASE_URL": api.base_url},
            within=500,
        )
    assert result.code == 0, result.err
    assert "4 tools, 0 resources" in result.err
    assert result.out == "tasks.jsonl: 2 train, 1 heldout\n"
