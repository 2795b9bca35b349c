"""ART's 2048 example on Podium: a small model learns to slide tiles, move by move.

    podium up                       # or any installation that PODIUM_ADDRESS names
    python examples/art_2048.py --steps 10
    python examples/art_2048.py --steps 10 --ruler      # the judge service ranks the games; it
                                                        # needs a judge: services/judge/README.md

It has the shape of `examples/2048/train.py` and `rollout.py` of OpenPipe/ART, written
anew: their game (utils.py) is here Podium's own, with a goal and a prompt for a small
model. To port those two files themselves, these of their lines change:

    import art                                      import podium as art
    from art.local import LocalBackend              (goes)
    backend = LocalBackend()                        async with art.AsyncClient() as backend:
    await backend._experimental_pull_from_s3(...)   (goes: register() goes on where it was)
    await backend._experimental_push_to_s3(...)     (goes: every step is in the registry)
    @weave.op, import weave                         stay or go; Podium does not need them

All other names are the same: TrainableModel, register, get_step, openai_client, Trajectory,
TrajectoryGroup, gather_trajectory_groups with pbar_desc and max_exceptions, retry, train with
TrainConfig, log, delete_checkpoints. What this port does otherwise is in examples/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import re

import openai
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

GOAL = 128
MAX_MOVES = 60
SYSTEM = (
    "You play 2048. Slide the tiles so that equal ones merge; try to make a {goal}. Answer with"
    " your move alone, in XML: <move>left</move>. The moves are left, right, up and down."
)
RUBRIC = "A game with a larger greatest tile is better; then one without an illegal move."


def drawn(board: Board) -> str:
    """The board as the model sees it."""
    return "\n".join("|".join(f"{tile or '_':>3}" for tile in row) for row in board)


def reward_of(board: Board, won: bool) -> float:
    """2 for the goal; before it the largest tile and the sum of all, each on a log scale."""
    if won:
        return 2.0
    largest = math.log(max_tile(board) / 2) / math.log(GOAL / 2)
    value = sum(map(sum, board))
    total = math.log(value / 2) / math.log(GOAL * 16 / 2)
    return largest + 0.2 * total


@art.retry(exceptions=(openai.LengthFinishReasonError,))
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


async def ranked(group: art.TrajectoryGroup) -> art.TrajectoryGroup | None:
    """The games with RULER's scores as rewards; a group that cannot be judged is left out."""
    return await art.ruler_score_group(group, rubric=RUBRIC, swallow_exceptions=True)


async def train(
    backend: Backend | HasBackend,
    *,
    base_model: str,
    steps: int,
    ruler: bool = False,
    games: int = 8,
    groups: int = 2,
) -> art.TrainableModel:
    """Plays and learns; goes on where an earlier run of the same model was."""
    model = art.TrainableModel(name="001", project="2048", base_model=base_model)
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
            after_each=ranked if ruler else None,
        )
        await model.log(found, "train")
        await model.train(found, config=art.TrainConfig(learning_rate=1e-5))
        await model.delete_checkpoints("train/reward")
    return model


async def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base-model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--ruler", action="store_true", help="let the judge service rank games")
    arguments = parser.parse_args()
    async with art.AsyncClient() as podium:
        await train(
            podium, base_model=arguments.base_model, steps=arguments.steps, ruler=arguments.ruler
        )


if __name__ == "__main__":
    asyncio.run(main())
