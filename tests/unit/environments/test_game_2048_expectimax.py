"""Rows S40 and S42: the search, against brute force and the tutorial's numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from podium.environments.game_2048 import Game2048
from podium.environments.game_2048 import board as rules
from podium.environments.game_2048.agents import ExpectimaxAgent
from podium.environments.game_2048.board import Board
from podium.environments.game_2048.evaluation import evaluate_board
from podium.environments.game_2048.expectimax import LOST, TUTORIAL_ILLEGAL_VALUE, Expectimax
from support.golden import golden

BOARDS = {
    name: (tuple(map(tuple, entry["board"])), entry)
    for name, entry in golden("game_2048.json")["boards"].items()
}
CHECKER, _ = BOARDS["B3_checker"]


def brute_force(board: Board, depth: int, illegal: float | None) -> dict[rules.Move, float]:
    """Expectimax as it is defined: no table, no memory, every last board evaluated."""
    values: dict[rules.Move, float] = {}
    for move in rules.MOVES:
        after, _ = rules.push(board, move)
        if after == board:
            if illegal is not None:
                values[move] = illegal
            continue
        cells = rules.empty_cells(after)
        total = 0.0
        for row, column in cells:
            for tile, probability in ((2, 0.9), (4, 0.1)):
                child = rules.place(after, row, column, tile)
                if depth == 1:
                    worth = float(evaluate_board(child))
                else:
                    replies = brute_force(child, depth - 1, illegal)
                    worth = max(replies.values(), default=evaluate_board(child) + LOST)
                total += probability * worth
        values[move] = total / len(cells)
    return values


def played_board(seed: int) -> Board:
    """A board from the middle of a game, some of them nearly full."""
    rng = random.Random(seed)
    board = rules.start(rng)
    for _ in range(rng.randrange(120)):
        moves = rules.available_moves(board)
        if not moves:
            break
        last = board
        board = rules.spawn(rules.push(board, rng.choice(moves))[0], rng)
    return board if rules.available_moves(board) else last


@pytest.mark.parametrize("name", ["B1", "B4"])
def test_s40_depth_one_values_are_the_tutorials(name: str) -> None:
    board, entry = BOARDS[name]
    values = Expectimax(1, TUTORIAL_ILLEGAL_VALUE).values(board)
    assert {move: round(value, 4) for move, value in values.items()} == entry["depth1"]


def test_s40_the_tutorials_search_prefers_what_cannot_be_played_and_ours_does_not() -> None:
    board, entry = BOARDS["B4"]
    assert Expectimax(2, TUTORIAL_ILLEGAL_VALUE).values(board)["down"] == entry["depth2_down"]
    corrected = Expectimax(2).values(board)
    assert list(corrected) == ["down", "left", "right"]
    assert corrected["down"] < TUTORIAL_ILLEGAL_VALUE


@pytest.mark.parametrize("illegal", [None, TUTORIAL_ILLEGAL_VALUE], ids=["corrected", "tutorial"])
@pytest.mark.parametrize("depth", [1, 2])
def test_s40_values_and_choice_equal_brute_force(depth: int, illegal: float | None) -> None:
    search = Expectimax(depth, illegal)
    for seed in range(40 if depth == 1 else 6):
        board = played_board(seed)
        expected = brute_force(board, depth, illegal)
        assert search.values(board) == pytest.approx(expected)
        best = max(expected.values())
        # Of equal moves the first, whatever rounding makes of them.
        equals = [move for move, value in expected.items() if value == pytest.approx(best)]
        assert search.choose(board).move == equals[0]


NEARLY_FULL = st.lists(
    st.sampled_from([0, 2, 4, 8, 16, 32, 64, 128]), min_size=16, max_size=16
).filter(lambda tiles: tiles.count(0) <= 4)


@settings(max_examples=30, deadline=None)
@given(NEARLY_FULL)
def test_s40_lost_replies_are_worth_the_same_to_brute_force(tiles: list[int]) -> None:
    board = tuple(tuple(tiles[start : start + 4]) for start in (0, 4, 8, 12))
    assert Expectimax(2).values(board) == pytest.approx(brute_force(board, 2, None))


def test_s40_a_board_of_twos_counts_the_new_four_as_its_greatest_tile() -> None:
    board = rules.place(rules.EMPTY, 1, 1, 2)
    assert Expectimax(1).values(board) == pytest.approx(brute_force(board, 1, None))


def test_s40_the_search_forgets_the_last_board() -> None:
    search = Expectimax(2)
    first = search.values(played_board(3))
    search.values(played_board(4))
    assert search.values(played_board(3)) == first


def test_s40_a_depth_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="depth is 0"):
        Expectimax(0)


def test_s42_without_a_move_the_choice_is_up_with_a_reason() -> None:
    choice = Expectimax(3).choose(CHECKER)
    assert choice.move == "up"
    assert choice.reason == "no move is possible"
    assert choice.value == evaluate_board(CHECKER) + LOST


def test_s42_strategies_are_selectable_by_name() -> None:
    assert {"random", "greedy", "expectimax", "minimax"} <= set(Game2048.baselines)
    assert isinstance(Game2048.baselines["minimax"](1), ExpectimaxAgent)
