"""Tic-tac-toe: the solved game, its positions, and the environment over them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from podium.core.errors import InvalidArgumentError
from podium.environments import Scenario, StepResult, load, play
from podium.environments.tic_tac_toe import TicTacToe, positions, rules
from podium.environments.tic_tac_toe.agents import Player
from podium.environments.tic_tac_toe.environment import INVALID
from podium.environments.types import assistant
from support.environments import check_contract

SCENARIOS = {split: TicTacToe().scenarios(split) for split in TicTacToe.splits}


async def begun(
    board: str = "XX.OO....", agent: str = "X", seed: int = 1, **options: Any
) -> TicTacToe:
    episode = TicTacToe(options)
    await episode.reset(Scenario("x", {"board": board, "agent": agent}), seed)
    return episode


async def played(*lines: str, **begin: Any) -> list[StepResult]:
    episode = await begun(**begin)
    return [await episode.step(assistant(line)) for line in lines]


def minimax(board: str) -> int:
    """The value by its definition, without memory or symmetry."""
    if rules.winner(board):
        return -1
    return max((-minimax(rules.play(board, c)) for c in rules.free_cells(board)), default=0)


@st.composite
def reached(draw: st.DrawFn) -> str:
    """A position that a game has come to."""
    board = rules.EMPTY
    for _ in range(draw(st.integers(0, 9))):
        if rules.is_over(board):
            break
        board = rules.play(board, draw(st.sampled_from(rules.free_cells(board))))
    return board


def test_the_game_is_a_draw_and_has_its_765_positions() -> None:
    assert rules.value(rules.EMPTY) == 0
    assert len(positions._reachable()) == 765


@settings(deadline=None)
@given(reached().filter(lambda board: board.count(".") <= 6))
def test_values_are_those_of_plain_minimax(board: str) -> None:
    assert rules.value(board) == minimax(board)


@settings(deadline=None)
@given(reached())
def test_turning_and_mirroring_change_no_value(board: str) -> None:
    for other in rules.symmetries(board):
        assert rules.value(other) == rules.value(board)
        assert rules.canonical(other) == rules.canonical(board)
        assert rules.winner(other) == rules.winner(board)


@settings(deadline=None)
@given(reached())
def test_hinted_cells_complete_a_row(board: str) -> None:
    if rules.is_over(board):
        return
    mark = rules.turn(board)
    completed = [c for c in rules.free_cells(board) if rules.winner(rules.play(board, c)) == mark]
    assert rules.winning_cells(board, mark) == completed


def test_a_perfect_player_never_loses_to_anyone() -> None:
    for seed in range(200):
        rng, player = random.Random(seed), Player(seed)
        board, mine = rules.EMPTY, "XO"[seed % 2]
        while not rules.is_over(board):
            ours = rules.turn(board) == mine
            cell = player.choose(board) if ours else rng.choice(rules.free_cells(board))
            board = rules.play(board, cell)
        assert rules.winner(board) in (mine, None)


def test_a_perfect_player_wins_at_once_and_loses_late() -> None:
    # Cells 3, 5 and 8 all win; only 3 wins now.
    assert [rules.value(rules.play("XX.O....O", cell)) for cell in (2, 4, 7)] == [-1] * 3
    assert rules.best_cells("XX.O....O") == [2]
    # O has lost wherever it plays, and stops the row that would be complete next.
    assert rules.value("..O...X.X") == -1
    assert rules.best_cells("..O...X.X") == [7]


def test_ties_between_best_cells_are_drawn_from_the_seed() -> None:
    chosen = [Player(seed).choose(rules.EMPTY) for seed in range(200)]
    assert set(chosen) == set(range(9))
    assert chosen == [Player(seed).choose(rules.EMPTY) for seed in range(200)]


@pytest.mark.parametrize(
    ("mistakes", "low", "high"), [(0.0, 0, 0), (0.5, 55, 105), (1.0, 140, 180)]
)
def test_mistakes_are_the_share_of_random_moves(mistakes: float, low: int, high: int) -> None:
    """One cell of five is right here, so of 200 random moves 160 err, 80 when half are random."""
    wrong = sum(Player(seed, mistakes).choose("XX.O....O") != 2 for seed in range(200))
    assert low <= wrong <= high


def test_no_two_starts_are_the_same_position() -> None:
    boards = [s.data["board"] for split in SCENARIOS.values() for s in split]
    assert len({rules.canonical(board) for board in boards}) == len(boards)
    assert len(SCENARIOS["train"]) == 2 * len(SCENARIOS["heldout"]) > 200


def test_every_start_can_be_held_and_can_be_lost_or_spoilt() -> None:
    for scenario in (*SCENARIOS["train"], *SCENARIOS["heldout"]):
        board = scenario.data["board"]
        assert rules.turn(board) == scenario.data["agent"]
        assert not rules.is_over(board)
        assert rules.value(board) >= 0
        assert rules.worst(board) < rules.value(board)


def test_the_agent_plays_either_side_in_both_splits() -> None:
    for scenarios in SCENARIOS.values():
        shares = sum(s.data["agent"] == "X" for s in scenarios) / len(scenarios)
        assert 0.4 < shares < 0.6


def test_the_example_is_right_and_no_start() -> None:
    assert positions.EXAMPLE_CELL - 1 in rules.best_cells(positions.EXAMPLE)
    example = rules.canonical(positions.EXAMPLE)
    boards = [s.data["board"] for split in SCENARIOS.values() for s in split]
    assert example not in {rules.canonical(board) for board in boards}


async def test_contract_in_every_scenario() -> None:
    await check_contract(TicTacToe, ["5", "x", "1", "2", "3", "4", "6", "7", "8", "9"])
    await check_contract(TicTacToe, ["9", "1", "5"], config={"mistakes": 0.5, "hints": True})


async def test_a_win_a_draw_and_a_loss() -> None:
    (win,) = await played("3")
    assert (win.reward, win.terminated, win.info["winner"]) == (1.0, True, "X")
    assert (win.metrics["success"], win.metrics["win"]) == (1.0, 1.0)
    assert win.observation.messages == []
    (draw,) = await played("9", board="XOXXOOOX.")
    assert (draw.reward, draw.terminated, draw.info["winner"]) == (0.5, True, None)
    assert (draw.metrics["success"], draw.metrics["win"]) == (1.0, 0.0)
    (loss,) = await played("9")
    assert (loss.reward, loss.terminated, loss.info["winner"]) == (0.0, True, "O")
    assert (loss.metrics["success"], loss.metrics["win"]) == (0.0, 0.0)


async def test_the_opponent_answers_and_the_agent_sees_the_board() -> None:
    episode = TicTacToe()
    first = await episode.reset(Scenario("x", {"board": "X...O....", "agent": "X"}), 1)
    assert first.messages[-1].content.splitlines() == [
        "X 2 3",
        "4 O 6",
        "7 8 9",
        "You are X. Free: 2 3 4 6 7 8 9",
    ]
    assert first.state == {
        "board": "X...O....",
        "agent": "X",
        "free_cells": [2, 3, 4, 6, 7, 8, 9],
    }
    result = await episode.step(assistant("2"))
    # Two in a row must be stopped at 3.
    assert result.observation.state["board"] == "XXO.O...."
    assert result.observation.messages[0].content.startswith("X X O\n")
    assert (result.reward, result.terminated) == (0.0, False)


async def test_the_opponent_begins_where_it_is_its_turn() -> None:
    episode = TicTacToe()
    first = await episode.reset(Scenario("x", {"board": "." * 9, "agent": "O"}), 1)
    assert first.state["board"].count("X") == 1
    assert first.state["agent"] == rules.turn(first.state["board"]) == "O"


async def test_hints_name_the_cells_that_win_and_that_must_be_stopped() -> None:
    plain, told = TicTacToe(), TicTacToe({"hints": True})
    board = Scenario("x", {"board": "XX.OO....", "agent": "X"})
    assert "wins" not in (await plain.reset(board, 1)).messages[-1].content
    lines = (await told.reset(board, 1)).messages[-1].content.splitlines()
    assert lines[-2:] == ["X wins at: 3", "O wins at: 6"]


@pytest.mark.parametrize("line", ["", "cell 3", "0", "10", "three", "-3", "{}", "33"])
async def test_an_answer_that_is_no_cell_costs_and_the_agent_is_asked_again(line: str) -> None:
    bad, good = await played(line, "3")
    assert bad.reward == INVALID < 0
    assert not bad.terminated
    assert bad.observation.state["board"] == "XX.OO...."
    assert bad.metrics["valid_format"] == bad.metrics["legal"] == 0.0
    assert (good.reward, good.metrics["valid_format"], good.metrics["turns"]) == (1.0, 0.5, 2.0)


async def test_a_taken_cell_costs_the_same_and_is_readable() -> None:
    (taken,) = await played("1")
    assert (taken.reward, taken.terminated) == (INVALID, False)
    assert (taken.metrics["valid_format"], taken.metrics["legal"]) == (1.0, 0.0)
    assert taken.observation.messages[0].content.startswith("Cell 1 is taken.\n")


@pytest.mark.parametrize("line", ["3", " 3.", "3\n4", "3, to win"])
async def test_the_first_number_is_the_cell(line: str) -> None:
    (result,) = await played(line)
    assert result.reward == 1.0


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        ({}, ["board", "agent"]),
        ({"board": "XX.OO....", "agent": "x"}, ["agent"]),
        ({"board": "XXX......", "agent": "X"}, ["board"]),
        ({"board": "XXXOO....", "agent": "X"}, ["board"]),
        ({"board": "O........", "agent": "X"}, ["board"]),
        ({"board": "XOXXOOOXX", "agent": "X"}, ["board"]),
        ({"board": "XX.OO...", "agent": "X"}, ["board"]),
        ({"board": 3, "agent": "X"}, ["board"]),
    ],
)
async def test_a_position_that_cannot_be_played_is_refused_by_field(
    data: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await TicTacToe().reset(Scenario("x", data), 1)
    assert [v.field for v in caught.value.violations] == [f"scenario.data.{f}" for f in fields]


@pytest.mark.parametrize("options", [{"mistakes": -0.1}, {"mistakes": 1.1}, {"opponent": "x"}])
def test_wrong_options_are_refused_by_field(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        TicTacToe(options)
    (field,) = options
    assert [v.field for v in caught.value.violations] == [f"environment.config.{field}"]


async def test_baselines_leave_room_to_learn() -> None:
    success = {}
    for name, make in TicTacToe.baselines.items():
        games = [
            await play(TicTacToe(), scenario, make(seed + 1000), seed=seed, max_turns=9)
            for seed, scenario in enumerate(SCENARIOS["heldout"])
        ]
        assert all(game.terminated for game in games)
        success[name] = sum(game.metrics["success"] for game in games) / len(games)
    assert success["perfect"] == 1.0
    assert 0.3 < success["random"] < 0.6
    assert load("tic_tac_toe") is TicTacToe
