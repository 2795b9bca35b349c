"""Which messages of an episode are its turns, and which step each led to."""

from __future__ import annotations

import pytest
from podium.core.actions import actions_of, episode_row
from podium.core.turns import count, parts_of
from podium.types.v1 import trajectory_pb2 as pb

ROLES = {"a": pb.ROLE_ASSISTANT, "u": pb.ROLE_USER, "s": pb.ROLE_SYSTEM}


def add(
    episode: pb.Trajectory, words: str, *, sampled: int = 0, conversation: str = ""
) -> pb.History:
    """A history of `role:text` words, whose tokens say that `sampled` turns are its own."""
    history = episode.histories.add(conversation=conversation)
    for word in words.split():
        role, _, text = word.partition(":")
        history.messages.add(role=ROLES[role], content=text)
    for turn in range(sampled):
        history.tokens.spans.add(start=10 * turn + 1, length=turn + 2)
    return history


def paid(episode: pb.Trajectory) -> list[dict[int, tuple[int, float | None]]]:
    """By history: place of each turn, its number and its reward."""
    return [
        {at: (t.number, t.step.reward if t.step else None) for at, t in part.turns.items()}
        for part in parts_of(episode)
    ]


def test_a_turn_that_a_later_history_repeats_is_one_turn_and_one_action() -> None:
    episode = pb.Trajectory(transitions=[pb.Transition(reward=0.25), pb.Transition(reward=1)])
    add(episode, "u:guess a:1 u:higher", sampled=1)
    add(episode, "u:guess a:1 u:higher a:4", sampled=1)
    assert paid(episode) == [{1: (1, 0.25)}, {3: (2, 1.0)}]
    assert [part.repeated for part in parts_of(episode)] == [0, 3]
    found = actions_of(episode)
    assert [(each.said, each.reward, each.tokens) for each in found] == [
        ("1", 0.25, 2),
        ("4", 1.0, 2),
    ]
    assert found[0].result == "higher"
    assert [each["content"] for each in found[1].prompt] == ["guess", "1", "higher"]
    assert (count(episode), episode_row(episode, 10)[2]) == (2, 2)


def test_a_conversation_that_forgets_and_goes_the_same_way_is_not_a_repetition() -> None:
    episode = pb.Trajectory(transitions=[pb.Transition(reward=0.5), pb.Transition(reward=-1)])
    for _ in range(2):
        add(episode, "s:play u:state a:left", sampled=1)
    assert paid(episode) == [{2: (1, 0.5)}, {2: (2, -1.0)}]
    assert [part.repeated for part in parts_of(episode)] == [0, 2]
    assert [each.reward for each in actions_of(episode)] == [0.5, -1.0]


def test_an_example_that_an_environment_wrote_is_no_turn() -> None:
    episode = pb.Trajectory(transitions=[pb.Transition(reward=0.5)])
    add(episode, "u:like a:this u:now a:mine", sampled=1)
    assert paid(episode) == [{3: (1, 0.5)}]


def test_each_conversation_has_its_own_steps_with_tokens_or_without() -> None:
    episode = pb.Trajectory(
        transitions=[
            pb.Transition(reward=1),
            pb.Transition(reward=2, conversation="other"),
            pb.Transition(reward=3),
        ]
    )
    add(episode, "u:go a:one u:on a:two", sampled=2)
    add(episode, "u:go a:theirs u:on a:cut", conversation="other")
    add(episode, "u:go a:theirs u:on a:cut", conversation="other")
    assert paid(episode) == [
        {1: (1, 1.0), 3: (2, 3.0)},
        {1: (3, 2.0), 3: (4, None)},
        {},
    ]


@pytest.mark.parametrize("sampled", [0, 1, 9])
def test_what_a_client_sends_need_not_fit(sampled: int) -> None:
    episode = pb.Trajectory(transitions=[pb.Transition(reward=1, conversation="nobody")])
    add(episode, "u:hm", sampled=sampled)
    add(episode, "", sampled=sampled)
    add(episode, "a:yes", sampled=sampled)
    assert paid(episode) == [{}, {}, {0: (1, None)}]
