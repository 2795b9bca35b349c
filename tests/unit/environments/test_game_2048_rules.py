"""Rows S34 to S36 and S38: the rules of 2048, and how a board is measured."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from podium.environments.game_2048 import board as rules
from podium.environments.game_2048.board import Board
from podium.environments.game_2048.evaluation import evaluate_board, monotonicity, smoothness
from support.golden import golden

GOLDEN = golden("game_2048.json")
BOARDS = {
    name: (tuple(map(tuple, entry["board"])), entry) for name, entry in GOLDEN["boards"].items()
}
TILES = st.sampled_from([0, 0, 0, 2, 2, 4, 4, 8, 16, 1024, 65536])
LINES = st.tuples(*[TILES] * 4)
ANY_BOARD = st.tuples(*[LINES] * 4)
MOVE = st.sampled_from(rules.MOVES)
MOVES_TURNED: tuple[rules.Move, ...] = ("left", "down", "right")
"""What "up" is called after one, two and three quarter turns to the left."""


def total(board: Board) -> int:
    return sum(map(sum, board))


def turned(board: Board) -> Board:
    """A quarter turn to the left."""
    return rules.transposed(board)[::-1]


@pytest.mark.parametrize("case", GOLDEN["merge"], ids=lambda case: str(case["line"]))
def test_s34_merge_line_of_the_tutorial(case: dict[str, Any]) -> None:
    line = tuple(case["line"])
    merged, gained = rules.merge_line(line)
    assert (list(merged), gained) == (case["merged"], case["gained"])
    assert (merged != line) is case["moved"]


def test_s34_merge_line() -> None:
    assert rules.merge_line((8, 8, 8, 0)) == ((16, 8, 0, 0), 16)
    assert rules.merge_line((4, 4, 8, 16)) == ((8, 8, 16, 0), 8)
    assert rules.merge_line_back((8, 8, 8, 0)) == ((0, 0, 8, 16), 16)
    assert rules.merge_line((65536, 65536, 0, 0)) == ((131072, 0, 0, 0), 131072)


@settings(deadline=None)
@given(LINES)
def test_s34_a_merged_line_is_packed_and_keeps_its_sum(line: rules.Line) -> None:
    merged, gained = rules.merge_line(line)
    tiles = [tile for tile in merged if tile]
    assert merged == (*tiles, *[0] * (4 - len(tiles)))
    assert sum(merged) == sum(line)
    # Every merge takes a tile away; nothing else does.
    assert (gained > 0) == (len(tiles) < sum(tile > 0 for tile in line))


@settings(deadline=None)
@given(ANY_BOARD, MOVE)
def test_s35_a_move_conserves_the_tile_sum(board: Board, move: rules.Move) -> None:
    after, gained = rules.push(board, move)
    assert total(after) == total(board)
    assert gained >= 0
    assert after != board or gained == 0


@settings(deadline=None)
@given(ANY_BOARD)
def test_s35_the_four_moves_are_one_move_seen_from_four_sides(board: Board) -> None:
    expected, gained = rules.push(board, "up")
    for seen_as in MOVES_TURNED:
        board, expected = turned(board), turned(expected)
        assert rules.push(board, seen_as) == (expected, gained)


@settings(deadline=None)
@given(ANY_BOARD, st.integers(0, 1000))
def test_s35_a_new_tile_is_a_two_or_a_four_on_an_empty_cell(board: Board, seed: int) -> None:
    empty = rules.empty_cells(board)
    if not empty:
        return
    after = rules.spawn(board, random.Random(seed))
    (changed,) = [cell for cell in empty if cell not in rules.empty_cells(after)]
    assert after[changed[0]][changed[1]] in (2, 4)
    assert rules.place(after, *changed, 0) == board
    assert after == rules.spawn(board, random.Random(seed))


def test_s35_nine_new_tiles_of_ten_are_twos_and_cells_are_equally_likely() -> None:
    rng = random.Random(7)
    spawned = [rules.spawn(rules.EMPTY, rng) for _ in range(4000)]
    twos = sum(total(board) == 2 for board in spawned) / len(spawned)
    # Four standard errors of 4000 draws: 0.019 of a share of 0.9, 61 of 250 a cell.
    assert abs(twos - 0.9) < 0.019
    cells = Counter(
        next((r, c) for r in range(4) for c in range(4) if board[r][c]) for board in spawned
    )
    assert all(abs(cells[r, c] - 250) < 62 for r in range(4) for c in range(4))


def test_s35_a_game_starts_with_two_tiles() -> None:
    for seed in range(50):
        board = rules.start(random.Random(seed))
        assert len(rules.empty_cells(board)) == 14
        assert total(board) in (4, 6, 8)


@pytest.mark.parametrize("name", ["B1", "B2_snakeless", "B3_checker"])
def test_s36_available_moves_of_the_tutorials_boards(name: str) -> None:
    board, entry = BOARDS[name]
    assert sorted(rules.available_moves(board)) == entry["moves"]


def test_s36_a_checkerboard_is_game_over_and_one_pair_is_not() -> None:
    checker, _ = BOARDS["B3_checker"]
    assert rules.available_moves(checker) == []
    assert rules.available_moves(rules.place(checker, 3, 3, 4)) == list(rules.MOVES)


@settings(deadline=None)
@given(ANY_BOARD, MOVE)
def test_s36_available_moves_are_those_that_change_the_board(
    board: Board, move: rules.Move
) -> None:
    assert (move in rules.available_moves(board)) == (rules.push(board, move)[0] != board)


@pytest.mark.parametrize("name", list(BOARDS))
def test_s38_smoothness_and_s40_evaluation_of_the_tutorials_boards(name: str) -> None:
    board, entry = BOARDS[name]
    assert smoothness(board) == entry["smooth"]
    assert evaluate_board(board) == entry["eval"]
    if "mono" in entry:
        assert monotonicity(board) == entry["mono"]


@settings(deadline=None)
@given(ANY_BOARD)
def test_s38_turning_and_mirroring_change_no_measure(board: Board) -> None:
    """The search relies on it: it takes a board for its transpose."""
    mirrored = tuple(line[::-1] for line in board)
    for other in (rules.transposed(board), turned(board), mirrored):
        assert smoothness(other) == smoothness(board)
        assert evaluate_board(other) == evaluate_board(board)
        assert rules.canonical(other) == rules.canonical(board)
