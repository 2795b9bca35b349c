"""An episode as trackers are told it: actions, what each earned, and the rows of the tables."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from podium.core.openai_messages import to_openai
from podium.core.token_records import spans_by_turn
from podium.core.turns import parts_of
from podium.types.v1 import trajectory_pb2

EPISODE_COLUMNS = ("episode_id", "total_reward", "steps", "success", "accuracy", "efficiency")
ACTION_COLUMNS = ("episode_id", "step", "action_type", "reward", "state_description")
DESCRIPTION_LENGTH = 100
_TYPE_LENGTH = 64
# What the built-in environments take as text: `search: words`.
_VERB = re.compile(r"\s*([A-Za-z][\w-]{0,63})\s*:")
_TYPE_KEYS = ("action", "action_type", "type", "name", "direction")


@dataclass(frozen=True)
class Action:
    """What the policy said in one turn, and what it led to."""

    type: str
    said: str
    thoughts: str
    """What it thought before, where a pool's reasoning parser set that apart; else empty."""
    parameters: Any
    prompt: list[dict[str, Any]]
    """The conversation before it."""
    result: str
    """What the environment answered."""
    reward: float
    state: Any
    next_state: Any
    tokens: int
    message: dict[str, Any]
    """All of what it said and called, as chat completions write it."""


def actions_of(trajectory: trajectory_pb2.Trajectory) -> list[Action]:
    """Every turn of the policy, in order and once, with the environment's step that it led to."""
    state: dict[str, Any] = {}
    found: list[Action] = []
    for history, part in zip(trajectory.histories, parts_of(trajectory), strict=True):
        name = history.conversation
        sampled = [sum(s.length for s in spans) for spans in spans_by_turn(history.tokens)]
        messages = [to_openai(each) for each in history.messages] if part.turns else []
        for place, (at, turn) in enumerate(part.turns.items()):
            led_to = turn.step
            message = history.messages[at]
            after = None
            if led_to is not None and led_to.HasField("state"):
                after = MessageToDict(led_to.state)
            kind, parameters = _action(message)
            found.append(
                Action(
                    type=kind,
                    said=message.content,
                    thoughts=message.reasoning,
                    parameters=parameters,
                    prompt=messages[:at],
                    result=_answer(history, at),
                    reward=led_to.reward if led_to is not None else 0.0,
                    state=state.get(name),
                    next_state=after,
                    tokens=sampled[place] if place < len(sampled) else 0,
                    message=messages[at],
                )
            )
            state[name] = after
    return found


def total_reward(trajectory: trajectory_pb2.Trajectory) -> float:
    """The reward that trains, before scoring the environment's own; 0 without either."""
    if trajectory.HasField("reward"):
        return trajectory.reward
    return trajectory.environment_reward


def has_succeeded(trajectory: trajectory_pb2.Trajectory) -> bool:
    """Whether its environment says so."""
    return trajectory.metrics.get("success", 0.0) > 0


def efficiency(steps: int, max_steps: int) -> float:
    """The share of allowed actions that was not needed; 0 for an episode without any."""
    return 1.0 - steps / (max_steps or steps) if steps > 0 else 0.0


def episode_row(trajectory: trajectory_pb2.Trajectory, max_steps: int) -> list[Any]:
    """The episode's row, as `EPISODE_COLUMNS`."""
    steps = len(actions_of(trajectory))
    return [
        trajectory.id,
        total_reward(trajectory),
        steps,
        has_succeeded(trajectory),
        trajectory.metrics.get("accuracy", 0.0),
        efficiency(steps, max_steps),
    ]


def action_rows(trajectory: trajectory_pb2.Trajectory) -> list[list[Any]]:
    """A row for each action, as `ACTION_COLUMNS`."""
    return [
        [trajectory.id, at, each.type, each.reward, described(each)[:DESCRIPTION_LENGTH]]
        for at, each in enumerate(actions_of(trajectory))
    ]


def described(action: Action) -> str:
    """The state that it led to; where the environment shows none, its answer."""
    if action.next_state is None:
        return action.result
    return json.dumps(action.next_state, ensure_ascii=False)


def _action(message: trajectory_pb2.Message) -> tuple[str, Any]:
    """Its type and parameters: of the first tool call, of JSON, of `verb: words`."""
    if message.tool_calls:
        call = message.tool_calls[0]
        return call.name[:_TYPE_LENGTH], _json(call.arguments_json) or call.arguments_json
    plain = _json(message.content)
    if isinstance(plain, dict):
        for key in _TYPE_KEYS:
            if isinstance(plain.get(key), str) and plain[key]:
                return plain[key][:_TYPE_LENGTH], plain
    if match := _VERB.match(message.content):
        return match[1].lower(), message.content[match.end() :].strip()
    return "message", message.content


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _answer(history: trajectory_pb2.History, at: int) -> str:
    """What was said until the policy's next turn."""
    said = []
    for message in history.messages[at + 1 :]:
        if message.role == trajectory_pb2.ROLE_ASSISTANT:
            break
        said.append(message.content)
    return "\n".join(said)
