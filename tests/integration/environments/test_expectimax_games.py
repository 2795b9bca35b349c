"""Row S40: what the search scores in whole games."""

from __future__ import annotations

import pytest
from podium.environments import play
from podium.environments.game_2048 import Game2048
from podium.environments.game_2048.agents import ExpectimaxAgent, RandomAgent


@pytest.mark.parametrize("games", [5, pytest.param(50, marks=pytest.mark.full)])
async def test_s40_expectimax_scores_four_times_what_random_does(games: int) -> None:
    """At depth 1, its weakest and fastest; the README has what deeper ones score."""
    config = {"goal": 131072}
    scenarios = Game2048(config).scenarios("heldout")[:games]
    means = []
    for agent in (RandomAgent, lambda seed: ExpectimaxAgent(seed, depth=1)):
        played = [
            await play(Game2048(config), scenario, agent(seed), seed=seed, max_turns=10_000)
            for seed, scenario in enumerate(scenarios)
        ]
        assert all(game.terminated for game in played)
        means.append(sum(game.metrics["score"] for game in played) / games)
    by_chance, searched = means
    assert searched >= 4 * by_chance
