"""The environment 2048: rows S4, S35, S37, S39 and S41, and the rewards that replace S37's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from podium.core.errors import InvalidArgumentError
from podium.environments import Scenario, StepResult, load, play
from podium.environments.game_2048 import Game2048, rewards
from podium.environments.game_2048 import board as rules
from podium.environments.types import assistant
from support.environments import check_contract
from support.golden import golden

GOLDEN = golden("game_2048.json")
B1 = GOLDEN["boards"]["B1"]["board"]
STATE_KEYS = {
    "board",
    "score",
    "moves_count",
    "max_tile",
    "empty_cells",
    "available_moves",
}


def tuples(board: list[list[int]]) -> rules.Board:
    return tuple(map(tuple, board))


async def begun(board: list[list[int]] = B1, seed: int = 1, **options: Any) -> Game2048:
    episode = Game2048(options)
    await episode.reset(Scenario("x", {"board": board}), seed)
    return episode


async def played(*lines: str, board: list[list[int]] = B1, **options: Any) -> list[StepResult]:
    episode = await begun(board, **options)
    return [await episode.step(assistant(line)) for line in lines]


@pytest.mark.parametrize("scheme", ["corrected", "tutorial"])
async def test_s4_contract_in_every_scenario(scheme: str) -> None:
    lines = ["left", "nonsense", "down", "left", "right", "up"]
    await check_contract(Game2048, lines, config={"rewards": scheme, "goal": 8})


def test_s35_scenarios_start_with_two_tiles_and_no_split_shares_one() -> None:
    starts = {
        split: [tuples(s.data["board"]) for s in Game2048().scenarios(split)]
        for split in Game2048.splits
    }
    assert [len(starts[split]) for split in ("train", "heldout")] == [128, 64]
    for boards in starts.values():
        assert len(set(boards)) == len(boards)
        assert {len(rules.empty_cells(board)) for board in boards} == {14}
    mirrored = [{rules.canonical(board) for board in boards} for boards in starts.values()]
    assert not mirrored[0] & mirrored[1]


async def test_s35_a_tile_appears_only_after_a_move_that_moved() -> None:
    still, moved = await played("up", "left")
    assert still.observation.state["board"] == B1
    assert still.observation.state["empty_cells"] == 14
    assert moved.observation.state["empty_cells"] == 14  # One merge, one new tile.
    assert moved.observation.state["board"] != B1


async def test_s35_the_seed_alone_decides_which_tiles_appear() -> None:
    async def boards(seed: int) -> list[Any]:
        episode = await begun(seed=seed)
        lines = ["left", "down", "right", "down", "left", "up"]
        return [(await episode.step(assistant(line))).observation.state for line in lines]

    assert await boards(5) == await boards(5)
    assert len({str(await boards(seed)) for seed in range(8)}) == 8


def test_s37_the_reward_of_the_tutorials_move() -> None:
    merged, gained = rules.push(tuples(B1), "left")
    expected = GOLDEN["left_after_merge"]
    assert (merged, gained) == (tuples(expected["board"]), expected["score"])
    assert rewards.tutorial_reward(merged, gained) == pytest.approx(expected["reward_before_spawn"])
    assert rewards.tutorial_reward(rules.place(merged, 3, 3, 2), gained) == pytest.approx(
        GOLDEN["reward_after_spawn_2_at_33"]
    )


async def test_s37_the_tutorials_rewards_are_paid_when_asked_for() -> None:
    invalid, unreadable, moved = await played("up", "?", "left", rewards="tutorial")
    assert invalid.reward == unreadable.reward == GOLDEN["invalid"]
    board = tuples(moved.observation.state["board"])
    assert moved.reward == pytest.approx(rewards.tutorial_reward(board, gained=4))


async def test_s37_the_tutorials_game_goes_on_after_the_goal() -> None:
    for scheme, ended in (("tutorial", False), ("corrected", True)):
        (result,) = await played(
            "left", board=[[4, 4, 0, 0], *[[0] * 4] * 3], goal=8, rewards=scheme
        )
        assert result.terminated is ended
        assert result.metrics["success"] == 1.0


async def test_s39_state_and_info_have_the_tutorials_keys_and_plain_numbers() -> None:
    episode = Game2048()
    first = await episode.reset(Scenario("x", {"board": B1}), 1)
    assert first.state == {
        "board": B1,
        "score": 0,
        "moves_count": 0,
        "max_tile": 2,
        "empty_cells": 14,
        "available_moves": ["down", "left", "right"],
    }
    still = await episode.step(assistant("up"))
    assert still.info == {"moved": False, "score_increase": 0, "max_tile": 2}
    assert still.observation.state["moves_count"] == 0
    moved = await episode.step(assistant("left"))
    assert set(moved.observation.state) == STATE_KEYS
    assert moved.info == {"moved": True, "score_increase": 4, "max_tile": 4}
    assert {type(value) for value in moved.info.values()} == {bool, int}
    assert (moved.observation.state["score"], moved.observation.state["moves_count"]) == (4, 1)


async def test_s41_a_game_has_at_most_max_moves_actions() -> None:
    results = await played("up", "left", "what?", "down", max_moves=4)
    assert [r.terminated for r in results] == [False, False, False, True]
    assert not any(r.truncated for r in results)
    assert results[-1].metrics["turns"] == 4


async def test_a_full_board_without_pairs_ends_the_game() -> None:
    nearly = [[2, 4, 2, 4], [4, 2, 4, 2], [2, 4, 2, 4], [4, 2, 16, 16]]
    ends = set()
    for seed in range(30):
        # Merging frees one cell, and whether what appears there matches is chance.
        result = await (await begun(nearly, seed)).step(assistant("left"))
        assert result.terminated is not bool(result.observation.state["available_moves"])
        assert result.terminated is not bool(result.observation.messages)
        ends.add(result.terminated)
    assert ends == {True, False}


async def test_a_game_that_reaches_the_goal_sums_to_one() -> None:
    game = await play(
        Game2048({"goal": 32}),
        Game2048().scenarios("train")[0],
        Game2048.baselines["greedy"](1),
        max_turns=100,
    )
    assert game.terminated
    assert game.metrics["success"] == 1.0
    assert game.reward == pytest.approx(1.0)
    assert game.metrics["legal"] == game.metrics["valid_format"] == 1.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
async def test_a_game_without_the_goal_earns_less_than_half_and_never_less_than_nothing(
    seed: int,
) -> None:
    game = await play(
        Game2048({"goal": 512}),
        Game2048().scenarios("heldout")[seed % 64],
        Game2048.baselines["random"](seed),
        seed=seed,
        max_turns=1000,
    )
    assert game.terminated
    assert game.metrics["success"] == (game.reward > 0.5)
    assert 0 < game.reward <= rewards.PROGRESS or game.metrics["success"]
    assert (
        game.reward
        == pytest.approx(rewards.PROGRESS * rewards.progress(int(game.metrics["score"]), 512))
        or game.metrics["success"]
    )


@pytest.mark.parametrize("line", ["", "hello", "I go left", "leftover", "1", "{}", "←"])
async def test_an_action_that_cannot_be_read_costs_and_the_game_goes_on(line: str) -> None:
    (result,) = await played(line)
    assert result.reward == rewards.INVALID < 0
    assert not result.terminated
    assert result.metrics["valid_format"] == result.metrics["legal"] == 0.0
    assert result.observation.messages[0].content.startswith("Unknown action.")


async def test_a_move_that_moves_nothing_costs_the_same_and_is_readable() -> None:
    (result,) = await played("up")
    assert result.reward == rewards.INVALID
    assert not result.terminated
    assert (result.metrics["valid_format"], result.metrics["legal"]) == (1.0, 0.0)


@pytest.mark.parametrize("line", ["left", "LEFT", " Left.", "left\nup", "left, because"])
async def test_the_first_word_is_the_move(line: str) -> None:
    (result,) = await played(line)
    assert result.observation.state["score"] == 4


async def test_the_agent_sees_the_board_and_what_it_can_do() -> None:
    observation = await Game2048({"goal": 64}).reset(Scenario("x", {"board": B1}), 1)
    assert "Make the tile 64." in observation.messages[0].content
    assert observation.messages[-1].content.splitlines() == [
        "2 2 . .",
        ". . . .",
        ". . . .",
        ". . . .",
        "Moves: down left right",
    ]
    example = [m.content for m in observation.messages[1:3]]
    assert example[1] in example[0].splitlines()[-1].split()


@pytest.mark.parametrize(
    "board",
    [
        None,
        "2200",
        [[2, 2, 0, 0]] * 3,
        [[2, 2, 0]] * 4,
        [[2, 2, 0, 3], *[[0] * 4] * 3],
        [[2, 1, 0, 0], *[[0] * 4] * 3],
        [[2, -2, 0, 0], *[[0] * 4] * 3],
        [[2, True, 0, 0], *[[0] * 4] * 3],
        [[2, 2.0, 0, 0], *[[0] * 4] * 3],
        [[0] * 4] * 4,
        [[2, 2048, 0, 0], *[[0] * 4] * 3],
        GOLDEN["boards"]["B3_checker"]["board"],
    ],
)
async def test_a_board_that_is_none_is_refused_by_field(board: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await Game2048().reset(Scenario("x", {"board": board}), 1)
    assert [v.field for v in caught.value.violations] == ["scenario.data.board"]


@pytest.mark.parametrize(
    "options", [{"goal": 100}, {"goal": 4}, {"max_moves": -1}, {"rewards": "x"}, {"size": 4}]
)
def test_wrong_options_are_refused_by_field(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Game2048(options)
    (field,) = options
    assert [v.field for v in caught.value.violations] == [f"environment.config.{field}"]


async def test_baselines_play_legal_moves_only_and_the_same_for_a_seed() -> None:
    scenario = Game2048().scenarios("heldout")[0]
    for name, make in Game2048.baselines.items():
        games = [
            await play(Game2048({"max_moves": 6}), scenario, make(seed), seed=3, max_turns=99)
            for seed in (1, 1)
        ]
        assert games[0] == games[1], name
        assert games[0].metrics["legal"] == 1.0, name
    assert load("2048") is Game2048
