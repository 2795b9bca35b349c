"""Who speaks beside the policy: what of it contradicts itself, whatever service reads it."""

from __future__ import annotations

from podium.core.contract.judging import is_judge_address, wrong_api_address
from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

AGENT = "agent"
"""The main conversation, in EpisodeSpec.players."""

OWN_PARAMETERS = (
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "model",
    "n",
    "seed",
    "stream",
    "temperature",
    "tools",
)
"""Of a request to a player's model: set by fields of their own, or by the rollout service."""


def model_player_violations(
    spec: spec_pb2.EpisodeSpec | spec_pb2.EvaluationSpec, path: str
) -> list[Violation]:
    """Every contradiction in `spec.model_players`; `path` is where `spec` stands.

    What only the rollout service knows is left to it: its keys and trusted addresses.
    """
    found = []
    for name, player in sorted(spec.model_players.items()):
        field = f"{path}.model_players[{name}]"
        if name in spec.players:
            found.append(
                Violation(field, f"{name!r} is among `players` too; allowed is one of the two")
            )
        found += _wrong(player, field)
    return found


def with_players(
    episode: spec_pb2.EpisodeSpec, evaluation: spec_pb2.EvaluationSpec
) -> spec_pb2.EpisodeSpec:
    """The training episodes with an evaluation's own players, each in place of theirs."""
    merged = spec_pb2.EpisodeSpec()
    merged.CopyFrom(episode)
    for name in (*evaluation.players, *evaluation.model_players):
        merged.players.pop(name, None)
        merged.model_players.pop(name, None)
    merged.players.update(evaluation.players)
    for name, player in evaluation.model_players.items():
        merged.model_players[name].CopyFrom(player)
    return merged


def _wrong(player: spec_pb2.ModelPlayer, field: str) -> list[Violation]:
    found = []
    if not is_judge_address(player.base_url):
        found.append(Violation(f"{field}.base_url", wrong_api_address(player.base_url)))
    found += [
        Violation(f"{field}.extra_body.{name}", "is set by the rollout service itself")
        for name in OWN_PARAMETERS
        if name in player.extra_body.fields
    ]
    return found
