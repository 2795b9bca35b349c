"""ART's 2048 and email scripts, ported: a short run of each with scripted models."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from podium.environments.email_search.corpus import questions
from podium.environments.game_2048.board import available_moves
from podium.training.in_process import InProcessBackend
from support.examples import example


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_2048() -> None:
    script = example("art_2048")
    rng = random.Random(3)

    def play(messages: list[dict[str, Any]], step: int) -> str:
        """Any move that does something; once in a while one that does not exist."""
        rows = messages[-1]["content"].split("\n")
        shown = tuple(tuple(int(c.replace("_", "0")) for c in row.split("|")) for row in rows)
        move = "jump" if rng.random() < 0.02 else rng.choice(available_moves(shown))
        return f"<move>{move}</move>"

    with InProcessBackend(play) as backend:
        model = await script.train(backend, base_model="none", steps=2, games=4, groups=2)
        batches = backend.batches[model.name]
        assert [len(batch) for batch in batches] == [2, 2]
        trajectories = [t for batch in batches for group in batch for t in group.trajectories]
        assert len(trajectories) == 16
        for trajectory in trajectories:
            # A conversation that goes on token for token is one history.
            (history,) = trajectory.histories
            moves = int(trajectory.metrics["moves"])
            invalid = int(trajectory.metrics["invalid_move"])
            assert len(history.tokens.spans) == moves + invalid
            assert trajectory.environment_reward == -1 or not invalid
        assert len({t.environment_reward for t in trajectories}) > 2
        again = await script.train(backend, base_model="none", steps=3, games=2, groups=1)
        assert await again.get_step() == 3


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


async def test_an_agent_of_langgraph() -> None:
    """It streams; its two turns are one conversation."""
    script = example("train_langgraph")
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
