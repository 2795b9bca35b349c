"""`python -m bench.expectimax`: what a move of 2048's expectimax costs, and what it scores."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from podium.environments import play
from podium.environments.game_2048 import Game2048
from podium.environments.game_2048.agents import ExpectimaxAgent
from podium.environments.game_2048.board import Board, available_moves, push, spawn, start
from podium.environments.game_2048.expectimax import Expectimax

TARGET_MS = 50.0
"""Of a move at depth 3, on average."""
_ENDLESS = {"goal": 131072}
_MOST_MOVES = 10_000


def main() -> int:
    """A missed target is printed and is no error."""
    options = _options()
    result: dict[str, Any] = {}
    if options.positions:
        result["moves"] = _moves(options.depth, positions(options.positions))
    if options.games:
        result["games"] = asyncio.run(_games(options.games_depth, options.games))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(_text(result))
    return 0


def positions(count: int) -> list[Board]:
    """Boards from all stages of seeded games that a search of depth 1 plays, 20 of each game."""
    found: list[Board] = []
    seed = 0
    while len(found) < count:
        rng = random.Random(f"positions-{seed}")
        search = Expectimax(1)
        board = start(rng)
        game = []
        while available_moves(board):
            game.append(board)
            board = spawn(push(board, search.choose(board).move)[0], rng)
        found += game[:: max(1, len(game) // 20)][:20]
        seed += 1
    return found[:count]


def _moves(depth: int, boards: list[Board]) -> dict[str, Any]:
    """Milliseconds of CPU and of the clock; lines are looked up in tables, which are warm."""
    search = Expectimax(depth)
    for board in boards:
        Expectimax(min(depth, 2)).choose(board)
    spent, passed = [], []
    for board in boards:
        cpu, clock = time.process_time(), time.perf_counter()
        search.choose(board)
        spent.append(1000 * (time.process_time() - cpu))
        passed.append(1000 * (time.perf_counter() - clock))
    return {
        "depth": depth,
        "positions": len(boards),
        "cpu_ms_mean": fmean(spent),
        "cpu_ms_median": median(spent),
        "cpu_ms_p95": quantiles(spent, n=20)[-1],
        "cpu_ms_max": max(spent),
        "clock_ms_mean": fmean(passed),
        "met": depth != 3 or fmean(spent) < TARGET_MS,
    }


async def _games(depth: int, count: int) -> dict[str, Any]:
    """Whole games on the first held-out starts, seeds from 0."""
    scenarios = Game2048(_ENDLESS).scenarios("heldout")[:count]
    scores, moves, tiles = [], [], []
    cpu = time.process_time()
    for seed, scenario in enumerate(scenarios):
        agent = ExpectimaxAgent(seed, depth=depth)
        game = await play(Game2048(_ENDLESS), scenario, agent, seed=seed, max_turns=_MOST_MOVES)
        scores.append(game.metrics["score"])
        moves.append(game.metrics["moves"])
        tiles.append(game.metrics["max_tile"])
        print(f"game {seed + 1} of {count}: {scores[-1]:.0f}", flush=True)
    return {
        "depth": depth,
        "games": count,
        "score_mean": fmean(scores),
        "score_median": median(scores),
        "moves_mean": fmean(moves),
        "best_tile": max(tiles),
        "cpu_ms_a_move": 1000 * (time.process_time() - cpu) / sum(moves),
    }


def _text(result: dict[str, Any]) -> str:
    lines = []
    if moves := result.get("moves"):
        lines.append(
            f"depth {moves['depth']}, {moves['positions']} positions: {moves['cpu_ms_mean']:.1f} ms"
            f" of CPU a move (median {moves['cpu_ms_median']:.1f}, 95 % within"
            f" {moves['cpu_ms_p95']:.1f}, most {moves['cpu_ms_max']:.1f}),"
            f" {moves['clock_ms_mean']:.1f} ms of the clock"
        )
        if not moves["met"]:
            lines.append(f"MISSED: the target is under {TARGET_MS:g} ms at depth 3")
    if games := result.get("games"):
        lines.append(
            f"depth {games['depth']}, {games['games']} games: mean score"
            f" {games['score_mean']:,.0f} (median {games['score_median']:,.0f}),"
            f" {games['moves_mean']:,.0f} moves, best tile {games['best_tile']:.0f},"
            f" {games['cpu_ms_a_move']:.1f} ms of CPU a move"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--depth", type=int, default=3, help="of the moves that are timed")
    parser.add_argument("--positions", type=int, default=200, help="0 for none")
    parser.add_argument("--games-depth", type=int, default=2)
    parser.add_argument("--games", type=int, default=50, help="0 for none")
    parser.add_argument("--output", type=Path, default=Path("build/bench/expectimax.json"))
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
