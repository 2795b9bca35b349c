"""Who speaks beside the policy, in training and in evaluations."""

from __future__ import annotations

from podium.core.contract.players import with_players
from podium.types.v1 import spec_pb2


def test_an_evaluations_players_take_the_place_of_either_kind() -> None:
    episode = spec_pb2.EpisodeSpec(players={"a": "base", "b": "baseline:x", "kept": "base"})
    episode.model_players["c"].model = "trained with"
    evaluation = spec_pb2.EvaluationSpec(players={"a": "baseline:y", "c": "base"})
    evaluation.model_players["b"].model = "measured with"
    merged = with_players(episode, evaluation)
    assert dict(merged.players) == {"a": "baseline:y", "c": "base", "kept": "base"}
    assert {name: each.model for name, each in merged.model_players.items()} == {
        "b": "measured with"
    }
    assert "c" in episode.model_players
