"""Self-play, opponents, and agents without a model in the policy's place."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.environments import Message, Observation, Scenario
from podium.environments.agent import Agent
from podium.environments.serving.convert import scenario_to_pb, struct
from podium.environments.tic_tac_toe import TicTacToe
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.group import GroupRunner
from support.rollout import PolicyDouble, group_request, sampled_ids, script

EMPTY = Scenario("empty", {"board": ".........", "agent": "X"})
X_WINS = ["1", "4", "2", "5", "3"]
"""X takes 1, 2, 3 and O takes 4, 5."""


def game(
    attempts: int = 1, scenario: Scenario = EMPTY, *, self_play: bool = True, **episode: Any
) -> rollout_pb.CollectGroupRequest:
    request = group_request(attempts, **{"max_turns": 12, **episode})
    request.environment.name = "tic_tac_toe"
    request.environment.config.CopyFrom(struct({"self_play": self_play}))
    request.scenario.CopyFrom(scenario_to_pb(scenario, "train"))
    return request


async def collect(
    request: rollout_pb.CollectGroupRequest, policy: PolicyDouble
) -> list[pb.Trajectory]:
    collector = GroupRunner(Environments(), {"default": policy}, max_groups=1)
    return sorted([t async for t in collector.collect(request)], key=lambda t: t.id)


def replies(trajectory: pb.Trajectory) -> list[str]:
    """What was said in it, without the prompt's worked example."""
    (history,) = trajectory.histories
    said = [m.content for m in history.messages if m.role == pb.ROLE_ASSISTANT]
    return said[1:]


async def test_one_episode_is_a_trajectory_of_each_side() -> None:
    request = game(attempts=2)
    policy = PolicyDouble(script(request, {0: X_WINS, 1: ["1", "x", *X_WINS[1:]]}))
    main, theirs, other, others = await collect(request, policy)
    assert [t.id for t in (main, theirs, other, others)] == [
        f"{request.group_id}/{name}" for name in ("t0", "t0/opponent", "t1", "t1/opponent")
    ]
    assert [(t.attempt, t.side) for t in (main, theirs)] == [(0, ""), (0, "opponent")]
    assert [replies(main), replies(theirs)] == [["1", "2", "3"], ["4", "5"]]
    assert [t.environment_reward for t in (main, theirs, other, others)] == [1.0, 0.0, 1.0, -0.1]
    assert [t.metrics["success"] for t in (main, theirs)] == [1, 0]
    assert [t.metrics["turns"] for t in (main, theirs, others)] == [3, 2, 3]
    assert set(main.metrics) == set(theirs.metrics)
    assert "You are X" in main.histories[0].messages[-2].content
    assert "You are O" in theirs.histories[0].messages[-2].content
    # Each side's tokens are what it alone saw and sampled.
    for trajectory in (main, theirs):
        tokens = trajectory.histories[0].tokens
        spans = [list(tokens.token_ids)[s.start : s.start + s.length] for s in tokens.spans]
        assert spans == [sampled_ids(reply) for reply in replies(trajectory)]


async def test_the_other_side_may_begin() -> None:
    request = game(scenario=Scenario("second", {"board": ".........", "agent": "O"}))
    main, theirs = await collect(request, PolicyDouble(script(request, {0: X_WINS})))
    assert [replies(main), replies(theirs)] == [["4", "5"], ["1", "2", "3"]]
    assert [main.environment_reward, theirs.environment_reward] == [0.0, 1.0]


async def test_a_baseline_plays_the_other_side_and_leaves_no_trajectory() -> None:
    request = game(attempts=4, players={"opponent": "baseline:perfect"})
    policy = PolicyDouble(script(request, {attempt: list("1928374655") for attempt in range(4)}))
    found = await collect(request, policy)
    assert [t.side for t in found] == [""] * 4
    assert all(t.environment_reward <= 0.5 for t in found)
    assert all(len(t.histories) == 1 for t in found)
    again = await collect(request, policy)
    assert [replies(t) for t in again] == [replies(t) for t in found]
    assert len({tuple(m.content for m in t.histories[0].messages) for t in found}) > 1


async def test_another_version_plays_the_other_side_and_does_not_train() -> None:
    request = game(players={"opponent": "guesser@1"})
    policy = PolicyDouble(script(request, {0: X_WINS}))
    (main,) = await collect(request, policy)
    assert [call.policy.version for call in policy.calls] == [3, 1, 3, 1, 3]
    assert replies(main) == ["1", "2", "3"]
    assert len(main.histories[0].tokens.spans) == 3


async def test_a_baseline_may_be_the_agent_itself() -> None:
    players = {"agent": "baseline:perfect"}
    policy = PolicyDouble()
    (main,) = await collect(game(self_play=False, players=players), policy)
    assert main.stop_reason == pb.STOP_REASON_TERMINATED
    assert main.environment_reward == 0.5
    assert not policy.calls
    assert len(replies(main)) == main.metrics["turns"] > 0
    assert main.histories[0].tokens == pb.TokenRecord()


@pytest.mark.parametrize(
    ("player", "why"),
    [
        ("baseline:none", "the environment's baselines are perfect, random"),
        ("Some One", "allowed are `baseline:NAME`, `base`, `JOB` and `JOB@VERSION`"),
    ],
)
async def test_a_player_that_there_is_not_is_refused_by_field(player: str, why: str) -> None:
    policy = PolicyDouble()
    with pytest.raises(InvalidArgumentError) as caught:
        await collect(game(players={"opponent": player}), policy)
    (violation,) = caught.value.violations
    assert violation.field == "episode.players[opponent]"
    assert why in violation.description
    assert not policy.calls


async def test_a_served_environments_baselines_are_not_here() -> None:
    request = game(players={"opponent": "baseline:random"})
    request.environment.address = "127.0.0.1:1"
    with pytest.raises(InvalidArgumentError) as caught:
        await collect(request, PolicyDouble())
    assert "built-in" in caught.value.violations[0].description


async def test_another_policy_that_is_not_served_ends_the_group() -> None:
    with pytest.raises(NotFoundError):
        await collect(game(players={"opponent": "other@1"}), PolicyDouble(otherwise="1"))


class Broken(Agent):
    async def act(self, observation: Observation) -> Message:
        raise RuntimeError("no idea")


async def test_an_agent_that_raises_fails_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TicTacToe, "baselines", {"broken": Broken})
    request = game(players={"opponent": "baseline:broken"})
    (main,) = await collect(request, PolicyDouble(otherwise="1"))
    assert main.stop_reason == pb.STOP_REASON_FAILED
    assert (main.failure.type, main.failure.message) == ("RuntimeError", "no idea")
