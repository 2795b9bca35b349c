"""Attempts as rows of a file to fine-tune on, and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from podium.core.openai_messages import to_openai, tools_to_openai
from podium.environments.scenarios.rows import Row
from podium.training.sft.files import File, Source
from podium.training.sft.rows import Conversation
from podium.training.trajectories import Trajectory
from podium.types.v1 import trajectory_pb2 as pb

_NAME = "scenario_id"
"""In the metadata of an attempt, as in a group's: what it is of."""


def rows_of(rows: Iterable[Trajectory | Mapping[str, Any]] | File) -> Source:
    """The file, or the rows, each attempt as its messages and tools, under its `scenario_id`."""
    if isinstance(rows, str | os.PathLike):
        return rows
    return [
        _row_of(each, f"rows[{index}]") if isinstance(each, Trajectory) else each
        for index, each in enumerate(rows)
    ]


def attempt_of(row: Conversation) -> Trajectory:
    """A row as an attempt, of which the same trains, and which errors call by the row's name."""
    messages = [
        to_openai(message)
        | ({"weight": 0} if message.role == pb.ROLE_ASSISTANT and at not in row.trained else {})
        for at, message in enumerate(row.messages)
    ]
    tools = tools_to_openai(row.tools) or None
    return Trajectory(messages_and_choices=messages, tools=tools, metadata={_NAME: row.where})


def _row_of(attempt: Trajectory, otherwise: str) -> Row:
    values = {"messages": attempt.messages(), "tools": attempt.offered_tools() or None}
    return Row(str(attempt.metadata.get(_NAME) or otherwise), values)
