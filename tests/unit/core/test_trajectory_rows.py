"""Trajectories as rows of plain data, and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.core.trajectory_rows import read_lines, rows_of, trajectories_of
from podium.types.v1 import trajectory_pb2 as pb
from support.wild_episode import WILD, wild_episode


def lines_of(*episodes: pb.Trajectory) -> list[str]:
    return [json.dumps(row, allow_nan=False) for each in episodes for row in rows_of(each, "train")]


def test_what_is_written_is_read_back_whole() -> None:
    episodes = [wild_episode(0), wild_episode(1, step=4)]
    assert list(read_lines(lines_of(*episodes))) == episodes


def test_a_row_is_a_conversation_as_fine_tuning_reads_it() -> None:
    first, second = rows_of(wild_episode(), "train")
    assert (first["history"], second["history"], second["histories"]) == (0, 1, 2)
    assert [message["role"] for message in first["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    assert first["messages"][1]["content"] == WILD
    assert first["messages"][2]["tool_calls"][0]["function"]["name"] == "search"
    assert first["tools"][0]["function"]["parameters"]["required"] == ["q"]
    assert (first["job"], first["step"], first["phase"], first["split"]) == (
        "w",
        3,
        "training",
        "train",
    )
    # As short as the same single-precision number can be written.
    assert json.dumps(second["logprobs"][:2]) == "[-0.100000001, -0.200000003]"
    assert second["spans"][0]["weights_version"] == 3


@pytest.mark.parametrize(
    ("fields", "phase", "step", "mode"),
    [
        ({"job_id": "w", "step": 4}, "training", 4, ""),
        ({"job_id": "w", "step": 0, "evaluation_mode": "greedy"}, "evaluation", 0, "greedy"),
        ({"job_id": "w"}, "", None, ""),
        ({}, "", None, ""),
    ],
)
def test_an_episode_says_of_what_it_is_whatever_its_id_looks_like(
    fields: dict[str, Any], phase: str, step: int | None, mode: str
) -> None:
    for name in ("w/d17/t0", "x/s1/g0/t0", "x/v12-sampled/g0/t0", "own"):
        told = pb.Trajectory(id=name, group_id=name, **fields)
        (row,) = rows_of(told, "heldout")
        assert row["job"] == fields.get("job_id", "")
        assert (row["phase"], row["step"], row["mode"]) == (phase, step, mode)
        assert list(trajectories_of([row])) == [told]


def test_an_episode_that_never_began_is_a_row_without_messages() -> None:
    failed = pb.Trajectory(
        id="w/s1/g0/t0", stop_reason=pb.STOP_REASON_FAILED, failure=pb.Failure(type="OSError")
    )
    (row,) = rows_of(failed)
    assert (row["messages"], row["histories"], row["failure"]["type"]) == ([], 0, "OSError")
    assert list(trajectories_of([row])) == [failed]


def test_numbers_that_json_lacks_are_null() -> None:
    made = wild_episode()
    made.reward, made.metrics["odd"] = math.inf, math.nan
    made.histories[0].tokens.logprobs[1] = -math.inf
    (row, _) = rows_of(made)
    json.dumps(row, allow_nan=False)
    assert (row["reward"], row["metrics"]["odd"], row["logprobs"][1]) == (None, None, None)
    (again,) = trajectories_of(rows_of(made))
    assert not again.HasField("reward")
    assert math.isnan(again.histories[0].tokens.logprobs[1])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{"], "line 1: is no JSON"),
        (["[1]"], "row 1: is no object with a trajectory_id"),
        (lines_of(wild_episode())[:1], "has 1 of 2 histories here"),
        (lines_of(wild_episode())[::-1], "not in order"),
        (['{"trajectory_id": "w/s1/g0/t0", "histories": 1}'], "cannot be read: KeyError"),
        (
            [lines_of(wild_episode())[0].replace('"histories": 2', '"histories": "2"')],
            "cannot be read: TypeError",
        ),
    ],
)
def test_what_is_no_such_file_is_told_by_its_place(lines: list[str], words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        list(read_lines(lines))
    assert words in str(caught.value.violations[0])
