"""What scorers over HTTP are asked, and how their answers are read.

Answers come from anybody's code: numbers must be finite, and as many as were asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from podium.core.openai_messages import to_openai, tools_to_openai
from podium.core.outside import clean, count_of, plain_of
from podium.types.v1 import trajectory_pb2

from podium_judge.domain.scores import Score, Unscored
from podium_judge.domain.transcript import histories_of
from podium_judge.domain.verdict import VerdictError, strictly

_MAX_REASON_CHARS = 2000


class NoAnswerError(Exception):
    """What came is not of the protocol at all."""


def group_body(
    group: trajectory_pb2.Group, trajectories: Sequence[trajectory_pb2.Trajectory]
) -> dict[str, Any]:
    """The request of HTTP_SCORER_PROTOCOL_SCORE: JSON values only, no NaN among them."""
    scenario = group.scenario
    return {
        "group_id": group.id,
        "scenario": {
            "id": scenario.id,
            "split": scenario.split,
            "data": plain_of(scenario.data),
        },
        "trajectories": [_attempt(trajectory) for trajectory in trajectories],
    }


def _attempt(trajectory: trajectory_pb2.Trajectory) -> dict[str, Any]:
    histories = histories_of(trajectory)
    conversations = [[to_openai(each) for each in history.messages] for history in histories]
    reward = trajectory.environment_reward if trajectory.HasField("environment_reward") else None
    stop = trajectory_pb2.StopReason.Name(trajectory.stop_reason)
    return {
        "id": trajectory.id,
        "messages": conversations[0] if conversations else [],
        "other_conversations": conversations[1:],
        "tools": tools_to_openai(histories[0].tools) if histories else [],
        "metrics": {name: _finite(value) for name, value in trajectory.metrics.items()},
        "reward": None if reward is None else _finite(reward),
        "stop_reason": stop.removeprefix("STOP_REASON_").lower(),
        "info": plain_of(trajectory.info),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def group_scores(content: bytes, count: int) -> list[Score | Unscored]:
    """The scores in an answer of HTTP_SCORER_PROTOCOL_SCORE, one for each of `count` attempts.

    Raises:
        VerdictError: not as many as attempts, or one that is no finite number.
        NoAnswerError: it has no list of scores.
    """
    answer = _object(content)
    values = answer.get("scores")
    if not isinstance(values, list):
        raise NoAnswerError("the scorer's answer has no list `scores`")
    if len(values) != count:
        raise VerdictError(f"the scorer gave {len(values)} scores for {count} attempts")
    reasons = answer.get("reasons")
    if reasons is None:
        reasons = [None] * count
    if not isinstance(reasons, list) or len(reasons) != count:
        raise VerdictError(f"the scorer's `reasons` are not a list of {count}, one an attempt")
    return [
        _verdict(number, value, reason)
        for number, (value, reason) in enumerate(zip(values, reasons, strict=True))
    ]


def _verdict(number: int, value: Any, reason: Any) -> Score | Unscored:
    if not isinstance(reason, str | None):
        raise VerdictError(f"the scorer's `reasons[{number}]` is no text and not null")
    words = clean((reason or "")[:_MAX_REASON_CHARS])
    if value is None:
        return Unscored(f"http: {words or 'the scorer gave this attempt no score'}")
    return Score(_number(value, f"`scores[{number}]`"), words)


def refusal(content: bytes) -> str:
    """Why a scorer will not score a group, in its own words; empty where there are none."""
    try:
        words = _object(content).get("error")
    except NoAnswerError:
        return ""
    if isinstance(words, dict):
        # As OpenAI's APIs write it, and vLLM.
        words = words.get("message")
    return clean(words[:_MAX_REASON_CHARS]) if isinstance(words, str) else ""


def chat_messages(history: trajectory_pb2.History) -> list[dict[str, Any]]:
    """A conversation as a reward model's chat template takes it."""
    return [_template_ready(to_openai(message)) for message in history.messages]


def _template_ready(message: dict[str, Any]) -> dict[str, Any]:
    # Many chat templates take the arguments apart, and break on those that are no object.
    for call in message.get("tool_calls", ()):
        text = call["function"]["arguments"]
        try:
            is_object = isinstance(strictly(text), dict)
        except VerdictError:
            is_object = False
        if not is_object:
            call["function"]["arguments"] = json.dumps({"malformed": text})
    return message


def class_score(content: bytes, index: int | None) -> float:
    """The probability of a class in vLLM's answer to `/classify`; without `index`, of the only one.

    Raises:
        VerdictError: no such class, or no finite number.
        NoAnswerError: it is no such answer.
    """
    probabilities = _only(content, "probs")
    if not isinstance(probabilities, list) or not probabilities:
        raise NoAnswerError("the classifier's answer has no list `probs`")
    classes = len(probabilities)
    if index is None and classes != 1:
        raise VerdictError(f"the classifier has {classes} classes; class_index must say which")
    if index is not None and index >= classes:
        raise VerdictError(f"the classifier has {classes} classes, from 0; class_index is {index}")
    return _number(probabilities[index or 0], "the probability")


def pooled_score(content: bytes) -> float:
    """The number in vLLM's answer to `/pooling`; of one for each token the last.

    Raises:
        VerdictError: a vector, or no finite number.
        NoAnswerError: it is no such answer.
    """
    value = _only(content, "data")
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        # One row a token: a reward model's says at the end of the text what all of it is worth.
        value = value[-1]
    if isinstance(value, list):
        if len(value) != 1:
            raise VerdictError(
                f"the model gave {len(value)} numbers; a reward model gives one, or one a token"
            )
        value = value[0]
    return _number(value, "the reward")


def prompt_tokens(content: bytes) -> int:
    """How many tokens a model says that it has read; 0 where it does not say."""
    try:
        usage = _object(content).get("usage")
    except NoAnswerError:
        return 0
    return count_of(usage.get("prompt_tokens")) if isinstance(usage, Mapping) else 0


def _only(content: bytes, key: str) -> Any:
    data = _object(content).get("data")
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
        raise NoAnswerError("the model's answer has no list `data` of one result")
    return data[0].get(key)


def _object(content: bytes) -> dict[str, Any]:
    try:
        answer = strictly(content.decode())
    except (UnicodeDecodeError, VerdictError):
        raise NoAnswerError("the answer is not one JSON object") from None
    if not isinstance(answer, dict):
        raise NoAnswerError("the answer is not one JSON object")
    return answer


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise VerdictError(f"{what} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise VerdictError(f"{what} is not finite")
    return number
