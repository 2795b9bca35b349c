"""ART's 2048 example on Podium: a small model learns to slide tiles, move by move.

    podium up                       # or any installation that PODIUM_ADDRESS names
    python examples/art_2048.py --steps 10

Written against ART's names: what differs from a script for ART is the import,
the backend, and that the learning rate belongs to the model.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import re

import podium as art
from podium.environments.game_2048.board import (
    MOVES,
    Board,
    available_moves,
    max_tile,
    push,
    spawn,
    start,
)
from podium.training.backend import Backend, HasBackend
from podium.types.v1 import spec_pb2

GOAL = 128
MAX_MOVES = 60
SYSTEM = (
    "You play 2048. Slide the tiles so that equal ones merge; try to make a {goal}. Answer with"
    " your move alone, in XML: <move>left</move>. The moves are left, right, up and down."
)


def drawn(board: Board) -> str:
    """The board as the model sees it."""
    return "\n".join("|".join(f"{tile or '_':>3}" for tile in row) for row in board)


def reward_of(board: Board, won: bool) -> float:
    """2 for the goal; before it the largest tile and the sum of all, each on a log scale."""
    if won:
        return 2.0
    largest = math.log(max_tile(board) / 2) / math.log(GOAL / 2)
    value = sum(map(sum, board))
    total = math.log(max(value, 2) / 2) / math.log(GOAL * 4)
    return largest + 0.2 * total


async def rollout(model: art.TrainableModel, seed: int) -> art.Trajectory:
    """One game: a conversation of boards and moves."""
    client = model.openai_client()
    rng = random.Random(seed)
    board = start(rng)
    trajectory = art.Trajectory(
        messages_and_choices=[{"role": "system", "content": SYSTEM.format(goal=GOAL)}],
        metadata={"seed": seed},
    )
    moves = 0
    while True:
        trajectory.messages_and_choices.append({"role": "user", "content": drawn(board)})
        completion = await client.chat.completions.create(
            model=model.get_inference_name(),
            messages=trajectory.messages(),
            max_completion_tokens=16,
        )
        choice = completion.choices[0]
        trajectory.messages_and_choices.append(choice)
        found = re.search(r"<move>\s*(\w+)\s*</move>", choice.message.content or "")
        move = next((each for each in MOVES if found and each == found[1]), None)
        if move is None or move not in available_moves(board):
            trajectory.reward = -1.0
            trajectory.metrics["invalid_move"] = 1
            break
        board = spawn(push(board, move)[0], rng)
        moves += 1
        won = max_tile(board) >= GOAL
        if won or not available_moves(board) or moves == MAX_MOVES:
            trajectory.reward = reward_of(board, won)
            trajectory.metrics |= {"invalid_move": 0, "win": won}
            break
    trajectory.metrics |= {"max_tile": max_tile(board), "moves": moves}
    await client.close()
    return trajectory.finish()


async def train(
    backend: Backend | HasBackend, *, base_model: str, steps: int, games: int = 8, groups: int = 2
) -> art.TrainableModel:
    """Plays and learns; goes on where an earlier run of the same model was."""
    training = spec_pb2.TrainingSpec(learning_rate=1e-5)
    model = art.TrainableModel(
        name="001", project="2048", base_model=base_model, spec=spec_pb2.JobSpec(training=training)
    )
    await model.register(backend)
    for step in range(await model.get_step(), steps):
        found = await art.gather_trajectory_groups(
            (
                art.TrajectoryGroup(
                    (rollout(model, step * groups + group) for _ in range(games)),
                    metadata={"scenario_id": f"game-{step * groups + group}"},
                )
                for group in range(groups)
            ),
            pbar_desc=f"step {step}",
            max_exceptions=games,
        )
        await model.log(found, "train")
        await model.train(found, config=art.TrainConfig(learning_rate=1e-5))
        await model.delete_checkpoints("train/reward")
    return model


async def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    async with art.AsyncClient() as podium:
        await train(podium, base_model=arguments.base_model, steps=arguments.steps)


if __name__ == "__main__":
    asyncio.run(main())
