"""ART's 2048 script, ported: short runs of whole games with a scripted model."""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from podium.environments.game_2048.board import Board, available_moves, max_tile
from podium.training.in_process import InProcessBackend
from podium.types.v1 import trajectory_pb2
from support.examples import example
from support.fake_judge import fake_judge, scores, shown
from support.judging import judge_service


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def board_of(drawn: str) -> Board:
    """The board that art_2048 shows."""
    return tuple(
        tuple(int(cell.replace("_", "0")) for cell in row.split("|")) for row in drawn.split("\n")
    )


def player(seed: int) -> Callable[[list[dict[str, Any]], int], str]:
    """Any move that does something; once in a while, not early, one that does not exist.

    A judge is shown a beginning that all attempts have in common once: of an attempt that ends
    in it, it sees no board. Games are the same in whatever order they are played: what is drawn
    rests on the game so far, and on how many were asked about the same one.
    """
    asked: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)

    def play(messages: list[dict[str, Any]], step: int) -> str:
        game = json.dumps([message["content"] for message in messages])
        rng = random.Random(f"{seed} {next(asked[game])} {game}")
        moves = available_moves(board_of(messages[-1]["content"]))
        wrong = rng.random() < 0.02 and len(messages) > 20
        move = "jump" if wrong else rng.choice(moves)
        return f"<move>{move}</move>"

    return play


async def test_2048() -> None:
    script = example("art_2048")
    with InProcessBackend(player(3)) as backend:
        model = await script.train(backend, base_model="none", steps=1, games=2, groups=2)
        batches = backend.batches[model.name]
        assert [len(batch) for batch in batches] == [2]
        trajectories = [t for batch in batches for group in batch for t in group.trajectories]
        assert len(trajectories) == 4
        for trajectory in trajectories:
            # A conversation that goes on token for token is one history.
            (history,) = trajectory.histories
            moves = int(trajectory.metrics["moves"])
            invalid = int(trajectory.metrics["invalid_move"])
            assert len(history.tokens.spans) == moves + invalid
            assert trajectory.environment_reward == -1 or not invalid
        assert len({t.environment_reward for t in trajectories}) > 1
        again = await script.train(backend, base_model="none", steps=2, games=2, groups=1)
        assert await again.get_step() == 2


async def test_2048_with_ruler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real judge service ranks whole games; its model is scripted."""
    script = example("art_2048")

    def last_tile(text: str) -> float:
        """The greatest tile of the last board that an attempt shows, of 2048."""
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        boards = [line["user"] for line in lines if "user" in line]
        return max_tile(board_of(boards[-1])) / 2048

    with fake_judge() as judge, InProcessBackend(player(5)) as backend:
        judge.then(scores(last_tile))
        async with judge_service(judge) as address:
            monkeypatch.setenv("PODIUM_ADDRESS", address)
            monkeypatch.setenv("PODIUM_JUDGE_ADDRESS", address)
            model = await script.train(
                backend, base_model="none", steps=1, games=3, groups=1, ruler=True
            )
        (batch,) = backend.batches[model.name]
        assert len(judge.requests) == len(batch) == 1
        for request in judge.requests:
            assert len(shown(request)) == 3
            assert script.RUBRIC in json.dumps(request)
        for trajectory in (t for group in batch for t in group.trajectories):
            history = trajectory.histories[-1]
            boards = [m.content for m in history.messages if m.role == trajectory_pb2.ROLE_USER]
            assert trajectory.environment_reward == max_tile(board_of(boards[-1])) / 2048
            assert trajectory.metrics["ruler_score"] == trajectory.environment_reward
            assert trajectory.metrics["independent_reward"] != trajectory.environment_reward
