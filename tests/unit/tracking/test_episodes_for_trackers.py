"""What an episode comes to in the rows and scalars of trackers."""

from __future__ import annotations

import pytest
from podium.core.actions import (
    ACTION_COLUMNS,
    EPISODE_COLUMNS,
    action_rows,
    actions_of,
    efficiency,
    episode_row,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from podium_tracking.domain.scalars import TUTORIAL, evaluation_scalars, step_scalars
from support.golden import golden
from support.tracking import Ledger, episode

GOLDEN = golden("tutorial_tracking.json")


def test_s30_efficiency_is_the_tutorials() -> None:
    found = {
        "5of10": efficiency(5, 10),
        "10of10": efficiency(10, 10),
        "0steps": efficiency(0, 10),
        "default_max": efficiency(7, 0),
    }
    assert found == GOLDEN["wandb_eff"]


def test_s29_s30_names_are_the_tutorials() -> None:
    assert ["epoch", *TUTORIAL] == GOLDEN["scalars"]
    assert list(EPISODE_COLUMNS) == GOLDEN["episodes"]
    assert list(ACTION_COLUMNS) == GOLDEN["actions"]


def test_s29_a_scalar_that_nobody_has_is_zero_and_one_that_is_no_number_is_left_out() -> None:
    step = Ledger.step(1)
    step.metrics.clear()
    step.metrics["train/loss"] = float("inf")
    found = step_scalars(step)
    assert {name: found[name] for name in GOLDEN["scalars"]} == {
        name: 1 if name == "epoch" else 0 for name in GOLDEN["scalars"]
    }
    assert "train/loss" not in found


def test_an_evaluation_is_by_its_mode() -> None:
    evaluation = pb.Evaluation(
        version=4,
        mode="greedy",
        episodes=8,
        metrics={"success": 0.5},
        success_low=0.2,
        success_high=0.8,
    )
    found = evaluation_scalars(evaluation)
    assert found["evaluation/version"] == 4
    assert found["evaluation/greedy/success"] == 0.5
    assert (found["evaluation/greedy/success_low"], found["evaluation/greedy/episodes"]) == (0.2, 8)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("search: budget", "search"),
        ('{"action": "read_email", "id": 3}', "read_email"),
        ('{"direction": "left"}', "left"),
        ("[1, 2]", "message"),
        ("I will look for it.", "message"),
        ("[" * 100_000, "message"),
        ("ü" * 1000, "message"),
        ("", "message"),
    ],
)
def test_an_actions_type_is_read_from_what_was_said(said: str, kind: str) -> None:
    [action] = actions_of(episode(1, 0, [(said, 0.5, {"found": 1})]))
    assert (action.type, action.reward, action.next_state) == (kind, 0.5, {"found": 1})


def test_a_turn_of_two_versions_is_one_action_with_all_of_its_tokens() -> None:
    found = episode(1, 0, [("go", 0.5, {"a": 1}), ("on", 0.5, {"a": 2})])
    tokens = found.histories[0].tokens
    del tokens.spans[:]
    for start, length in ((2, 3), (5, 4), (11, 2)):
        tokens.spans.add(start=start, length=length, weights_version=start)
    assert [action.tokens for action in actions_of(found)] == [7, 2]


def test_a_tool_call_is_an_action_with_its_arguments() -> None:
    found = episode(1, 0, [("", 1.0, {"a": 1})])
    message = found.histories[0].messages[2]
    message.tool_calls.add(id="c1", name="read_mail", arguments_json='{"id": 3}')
    message.tool_calls.add(id="c2", name="broken", arguments_json="{")
    [action] = actions_of(found)
    assert (action.type, action.parameters) == ("read_mail", {"id": 3})
    assert [each["id"] for each in action.message["tool_calls"]] == ["c1", "c2"]


def test_what_was_thought_is_told_apart_from_what_was_said() -> None:
    found = episode(1, 0, [("search: a", 0.1, {"n": 1}), ("search: b", 0.9, {"n": 2})])
    found.histories[0].messages[2].reasoning = "select: none of it"
    thought, plain = actions_of(found)
    assert (thought.type, thought.said, thought.thoughts) == (
        "search",
        "search: a",
        "select: none of it",
    )
    assert thought.message == {
        "role": "assistant",
        "content": "search: a",
        "reasoning_content": "select: none of it",
    }
    assert (plain.thoughts, "reasoning_content" in plain.message) == ("", False)
    assert plain.prompt[2] == thought.message


def test_the_conversation_before_an_action_is_as_chat_completions_write_it() -> None:
    found = episode(1, 0, [("go", 1.0, {"a": 1})])
    found.histories[0].messages[1].name = "player_2"
    found.histories[0].messages.insert(
        2,
        trajectory_pb2.Message(role=trajectory_pb2.ROLE_TOOL, content="4", tool_call_id="c1"),
    )
    [action] = actions_of(found)
    assert action.prompt[1]["name"] == "player_2"
    assert action.prompt[2:] == [{"role": "tool", "content": "4", "tool_call_id": "c1"}]


def test_states_follow_each_other_and_each_conversation_has_its_own() -> None:
    found = episode(1, 0, [("search: a", 0.1, {"n": 1}), ("select: b", 0.9, {"n": 2})])
    helper = found.histories.add(conversation="helper")
    helper.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content="help: me")
    actions = actions_of(found)
    assert [(each.state, each.next_state) for each in actions] == [
        (None, {"n": 1}),
        ({"n": 1}, {"n": 2}),
        (None, None),
    ]
    assert [each.reward for each in actions] == [0.1, 0.9, 0.0]


def test_s30_an_episode_that_broke_before_its_first_turn_has_a_row_and_no_action() -> None:
    broken = trajectory_pb2.Trajectory(id="search/s1/g0/t1", group_id="search/s1/g0")
    assert episode_row(broken, 10) == ["search/s1/g0/t1", 0.0, 0, False, 0.0, 0.0]
    assert action_rows(broken) == []
