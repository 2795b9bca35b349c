"""Trajectories as rows of plain data, for files, and back.

A row is a history, so that its `messages` and `tools` are what supervised fine-tuning reads, in
the format of OpenAI's chat completions; the columns of the trajectory are the same in each of its
rows. docs/trajectories.md tells each column. Numbers that are none, or infinite, are None: JSON
has no word for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal

from google.protobuf.descriptor import EnumDescriptor

from podium.core.contract.text import enum_number, short_name
from podium.core.errors import InvalidArgumentError, Violation
from podium.core.judgement_rows import judgement_of, judgement_to_plain
from podium.core.openai_messages import message_of, to_openai, tools_of, tools_to_openai
from podium.core.outside import plain_of, struct_of
from podium.types.v1 import trajectory_pb2 as pb

Row = dict[str, Any]

_FINISH = pb.FinishReason.DESCRIPTOR
_STOPS = pb.StopReason.DESCRIPTOR
_Number = Literal["reward", "environment_reward", "environment_weight"]
_NUMBERS: tuple[_Number, ...] = ("reward", "environment_reward", "environment_weight")
_TEXTS = ("group_id", "scenario_id", "attempt", "side", "explanation", "trace_id", "score_reward")


def rows_of(trajectory: pb.Trajectory, split: str = "") -> Iterator[Row]:
    """A row for each history; one without messages for an episode that has none.

    Args:
        split: that the scenario is of, which a trajectory does not say.
    """
    whole = _episode(trajectory, split)
    for index, history in enumerate(trajectory.histories or [pb.History()]):
        yield {
            "trajectory_id": trajectory.id,
            "history": index,
            "histories": len(trajectory.histories),
            "conversation": history.conversation,
            "messages": [_message(message) for message in history.messages],
            "tools": tools_to_openai(history.tools),
            "token_ids": list(history.tokens.token_ids),
            "logprobs": [_single(value) for value in history.tokens.logprobs],
            "spans": [_span(span) for span in history.tokens.spans],
            **whole,
        }


def trajectories_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[pb.Trajectory]:
    """The trajectories of rows as `rows_of` makes them; those of one follow each other.

    Raises:
        InvalidArgumentError: a row is none, or a trajectory lacks rows.
    """
    for name, found in groupby(_checked(rows), key=lambda row: row["trajectory_id"]):
        each = list(found)
        try:
            count: int = each[0]["histories"]
            if [row["history"] for row in each] != list(range(max(count, 1))):
                raise _wrong(name, f"has {len(each)} of {count} histories here, or not in order")
            made = _trajectory(name, each, count)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _wrong(name, f"cannot be read: {type(error).__name__}: {error}") from None
        yield made


def read_lines(lines: Iterable[str]) -> Iterator[pb.Trajectory]:
    """The trajectories of a file of JSON lines, one after the other.

    Raises:
        InvalidArgumentError: as `trajectories_of`, or a line is no JSON object.
    """

    def rows() -> Iterator[Row]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise _wrong(f"line {number}", f"is no JSON: {error}") from None
            yield row

    yield from trajectories_of(rows())


def _episode(trajectory: pb.Trajectory, split: str) -> Row:
    return {
        "group_id": trajectory.group_id,
        "job": trajectory.job_id,
        "split": split,
        "phase": _phase(trajectory),
        "step": trajectory.step if trajectory.HasField("step") else None,
        "mode": trajectory.evaluation_mode,
        "environment": trajectory.environment,
        "scenario_id": trajectory.scenario_id,
        "attempt": trajectory.attempt,
        "side": trajectory.side,
        **{
            name: _finite(getattr(trajectory, name)) if trajectory.HasField(name) else None
            for name in _NUMBERS
        },
        "score_reward": _finite(trajectory.score_reward),
        "reward_parts": _numbers(trajectory.reward_parts),
        "metrics": _numbers(trajectory.metrics),
        "transitions": [_transition(each) for each in trajectory.transitions],
        "explanation": trajectory.explanation,
        "judgements": [judgement_to_plain(each) for each in trajectory.judgements],
        "stop_reason": short_name(_STOPS, trajectory.stop_reason),
        "failure": _failure(trajectory.failure) if trajectory.HasField("failure") else None,
        "info": plain_of(trajectory.info) if trajectory.HasField("info") else None,
        "start_time": _time(trajectory, "start_time"),
        "end_time": _time(trajectory, "end_time"),
        "trace_id": trajectory.trace_id,
    }


def _trajectory(name: str, rows: list[Mapping[str, Any]], histories: int) -> pb.Trajectory:
    row = rows[0]
    made = pb.Trajectory(
        id=name,
        histories=[_history(each) for each in rows[:histories]],
        reward_parts={key: _number(value) for key, value in row["reward_parts"].items()},
        metrics={key: _number(value) for key, value in row["metrics"].items()},
        environment=row.get("environment", ""),
        transitions=[_to_transition(each) for each in row["transitions"]],
        judgements=[judgement_of(each) for each in row.get("judgements", ())],
        job_id=row["job"],
        step=row["step"],
        evaluation_mode=row.get("mode", ""),
        stop_reason=_enum(_STOPS, row["stop_reason"]),
        **{key: row[key] for key in _TEXTS if row[key] is not None},
        **{key: row[key] for key in _NUMBERS if row.get(key) is not None},
    )
    if row["failure"] is not None:
        made.failure.CopyFrom(pb.Failure(**row["failure"]))
    if row["info"] is not None:
        made.info.CopyFrom(struct_of(row["info"]))
    for key in ("start_time", "end_time"):
        if row[key] is not None:
            getattr(made, key).FromJsonString(row[key])
    return made


def _phase(trajectory: pb.Trajectory) -> str:
    """Empty for one that no job has, or has trained on yet."""
    if trajectory.evaluation_mode:
        return "evaluation"
    return "training" if trajectory.HasField("step") else ""


def _message(message: pb.Message) -> Row:
    plain = to_openai(message)
    if message.malformed_calls:
        plain["malformed_calls"] = list(message.malformed_calls)
    return plain


def _history(row: Mapping[str, Any]) -> pb.History:
    made = pb.History(conversation=row["conversation"], tools=tools_of(row))
    for plain in row["messages"]:
        message = message_of(plain)
        message.malformed_calls.extend(plain.get("malformed_calls", ()))
        made.messages.append(message)
    if row["token_ids"]:
        made.tokens.token_ids.extend(row["token_ids"])
        made.tokens.logprobs.extend(_number(value) for value in row["logprobs"])
        for span in row["spans"]:
            reason = _enum(_FINISH, span["finish_reason"])
            made.tokens.spans.add(**{**span, "finish_reason": reason})
    return made


def _span(span: pb.SampledSpan) -> Row:
    return {
        "start": span.start,
        "length": span.length,
        "policy": span.policy,
        "weights_version": span.weights_version,
        "temperature": _single(span.temperature),
        "finish_reason": short_name(_FINISH, span.finish_reason),
        "request_id": span.request_id,
    }


def _transition(each: pb.Transition) -> Row:
    return {
        "conversation": each.conversation,
        "reward": _finite(each.reward),
        "state": plain_of(each.state) if each.HasField("state") else None,
        "terminated": each.terminated,
        "truncated": each.truncated,
    }


def _to_transition(plain: Mapping[str, Any]) -> pb.Transition:
    made = pb.Transition(
        conversation=plain["conversation"],
        reward=_number(plain["reward"]),
        terminated=plain["terminated"],
        truncated=plain["truncated"],
    )
    if plain["state"] is not None:
        made.state.CopyFrom(struct_of(plain["state"]))
    return made


def _failure(failure: pb.Failure) -> Row:
    return {"type": failure.type, "message": failure.message, "traceback": failure.traceback}


def _numbers(found: Mapping[str, float]) -> Row:
    return {name: _finite(found[name]) for name in sorted(found)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _single(value: float) -> float | None:
    """A single-precision number without the digits that it does not have."""
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _time(trajectory: pb.Trajectory, name: Literal["start_time", "end_time"]) -> str | None:
    if not trajectory.HasField(name):
        return None
    text: str = getattr(trajectory, name).ToJsonString()
    return text


def _enum(enum: EnumDescriptor, name: str) -> Any:
    # What a newer Podium says is a number here.
    known = enum_number(enum, name)
    return int(name) if known is None else known


def _checked(rows: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping) or not isinstance(row.get("trajectory_id"), str):
            raise _wrong(f"row {number}", "is no object with a trajectory_id")
        yield row


def _wrong(where: str, words: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation(where, words)])
