"""The prompt that a demo leaves to chat with."""

from __future__ import annotations

from podium.cli.demo.run import opening
from podium.types.v1 import trajectory_pb2

SYSTEM, USER, ASSISTANT = (
    trajectory_pb2.ROLE_SYSTEM,
    trajectory_pb2.ROLE_USER,
    trajectory_pb2.ROLE_ASSISTANT,
)


def test_it_ends_with_the_question_and_keeps_the_worked_example() -> None:
    said = [
        (SYSTEM, "rules"),
        (USER, "example question"),
        (ASSISTANT, "example answer"),
        (USER, "question"),
        (ASSISTANT, "sampled"),
        (USER, "result"),
        (ASSISTANT, "sampled again"),
    ]
    episode = trajectory_pb2.Trajectory(metrics={"turns": 2})
    history = episode.histories.add()
    for role, content in said:
        history.messages.add(role=role, content=content)

    assert opening(episode) == [
        {"role": "system", "content": "rules"},
        {"role": "user", "content": "example question"},
        {"role": "assistant", "content": "example answer"},
        {"role": "user", "content": "question"},
    ]
