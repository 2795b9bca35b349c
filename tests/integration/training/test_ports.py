"""ART's 2048 and email scripts, ported: a short run of each with scripted models."""

from __future__ import annotations

import inspect
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
from podium.environments.email_search.corpus import questions
from podium.environments.game_2048.board import Board
from podium.training.in_process import InProcessBackend
from podium.types.v1 import spec_pb2
from support.examples import example, imports

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_2048_pays_as_arts_example() -> None:
    """Recomputed from its words: 0 for 2 to 1 for the goal, and a fifth of 0 to 1 for 16 goals."""
    script = example("art_2048")
    reward = script.reward_of
    board: Board = ((64, 32, 2, 2), (0, 4, 0, 0), (0, 0, 0, 0), (0, 0, 0, 16))
    value = 64 + 32 + 2 + 2 + 4 + 16
    largest, total = (math.log2(64) - 1) / 6, (math.log2(value) - 1) / 10
    assert reward(board, False) == pytest.approx(largest + 0.2 * total)
    assert reward(((128,) * 4,) * 4, False) == pytest.approx(1.2)
    assert reward(board, True) == 2.0


@pytest.mark.parametrize(
    ("name", "constants"),
    [("art_2048", ["MAX_MOVES"]), ("art_email", ["MAX_TURNS"])],
)
def test_the_numbers_that_are_said_of_a_port_are_its_own(name: str, constants: list[str]) -> None:
    script = example(name)
    text = (ROOT / "examples" / "README.md").read_text()
    section = text.partition(f"### `{name}.py`")[2].partition("###")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    parameters = inspect.signature(script.train).parameters
    for parameter, value in parameters.items():
        if type(value.default) is int:
            (row,) = (row for row in rows if f"`{parameter}`" in row.split("|")[1])
            assert re.match(rf" {value.default}\b", row.split("|")[3]), row
    for constant in constants:
        assert f"`{constant}`, {getattr(script, constant)}" in section
    asked = re.search(r"max_completion_tokens=(\d+)", inspect.getsource(script.rollout))
    assert asked is not None
    assert re.search(rf"`max_completion_tokens` \| \d+ \| {asked[1]} \|", section)
    # `steps` is the command line's.
    said = re.search(r'"--steps", type=int, default=(\d+)', inspect.getsource(script.main))
    assert said is not None
    assert re.search(rf"`steps` \| \d+ \| {said[1]}; `--steps` \|", section)


async def test_email() -> None:
    script = example("art_email")
    by_question = {question.text: question.email for question in questions("train")}

    def search(messages: list[dict[str, Any]], step: int) -> dict[str, Any] | str:
        """Searches for the sender, reads the first email found and returns it."""
        turns = sum(message["role"] == "assistant" for message in messages)
        email = by_question.get(messages[1]["content"])
        if email is None:
            return "I do not know."
        shown = re.match(r"(\d+) \|", messages[-1]["content"] or "")
        number = int(shown[1]) if shown else email.number
        name, arguments = [
            ("search_inbox", {"words": email.sender.split()[0]}),
            ("read_email", {"number": number}),
            ("return_answer", {"number": email.number}),
        ][turns]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"c{turns}", "type": "function", "function": function}]}

    with InProcessBackend(search) as backend:
        model = await script.train(backend, base_model="none", steps=1, attempts=2, batch=2)
        (batch,) = backend.batches[model.name]
        for trajectory in (t for group in batch for t in group.trajectories):
            assert trajectory.environment_reward == pytest.approx(1.7)
            (history,) = trajectory.histories
            assert len(history.tokens.spans) == 3
            assert history.tools[0].name == "search_inbox"
            assert history.messages[2].tool_calls[0].name == "search_inbox"
        (version,) = [v for v in await model.checkpoints() if v.manifest.version == 0]
        assert version.evaluation_metrics["val/correct"] == 0


async def test_an_agent_of_openais_plain_client_with_arguments_and_with_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That it knows nothing of Podium is in what it imports."""
    agent = example("openai_agent")
    assert "podium" not in {name.partition(".")[0] for name in imports("openai_agent")}
    with InProcessBackend(lambda messages, step: messages[-1]["content"].upper()) as backend:
        base_url = await backend.register("m", spec_pb2.JobSpec(base_model="none"))
        said = await agent.answer("why?", model="m", base_url=base_url, api_key="any")
        assert said == "ARE YOU SURE? ANSWER ONCE MORE, IN FEWER WORDS."
        monkeypatch.setenv("OPENAI_BASE_URL", base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        assert await agent.answer("why?", model="m") == said


@pytest.mark.parametrize("script_name", ["train_openai", "train_langgraph"])
async def test_an_agent_that_knows_nothing_of_podium_trains(script_name: str) -> None:
    """Two turns are one conversation; LangGraph's are streamed."""
    script = example(script_name)
    rng = random.Random(4)

    def talk(messages: list[dict[str, Any]], step: int) -> str:
        return " ".join(["word"] * rng.randint(1, 9))

    with InProcessBackend(talk) as backend:
        model = await script.train(backend, base_model="none", steps=1, attempts=2)
        (batch,) = backend.batches[model.name]
        assert len(batch) == len(script.QUESTIONS)
        for trajectory in (t for group in batch for t in group.trajectories):
            (history,) = trajectory.histories
            assert len(history.tokens.spans) == 2
            last = history.messages[-1].content.split()
            assert trajectory.environment_reward == 1 / len(last)
