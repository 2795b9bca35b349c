"""What an environment and an agent exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """A function call that the model asked for; the arguments are unchecked JSON text."""

    id: str
    name: str
    arguments_json: str


@dataclass(frozen=True)
class Tool:
    """A function on offer; `parameters` is a JSON Schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """One message of the conversation."""

    role: Role
    content: str = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str = ""
    name: str = ""
    malformed_calls: Sequence[str] = ()
    """Of the agent's message: why calls that it tried to write could not be read. It is told."""
    conversation: str = ""
    """Whose it is, see `to`; of the agent's message, who speaks."""
    begins_history: bool = False
    """See `anew`."""


@dataclass(frozen=True)
class Scenario:
    """A task instance; `data` holds JSON values."""

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)
    split: str = ""


@dataclass(frozen=True)
class Observation:
    """What the agent sees next: messages to append, tools on offer, the state as JSON values."""

    messages: Sequence[Message] = ()
    tools: Sequence[Tool] = ()
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepResult:
    """What an action led to.

    `terminated` means that the task ended; `truncated` that the episode was
    cut for a reason outside the task. `metrics` are kept with the trajectory:
    of one name the last value. `info` holds JSON values. `side_rewards` are
    those of the sides but the main one, by conversation.
    """

    observation: Observation
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    side_rewards: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """What an episode earned as a whole.

    `reward` and `side_rewards` are added to those of the steps, `metrics` and
    `info` are put over theirs name by name.
    """

    reward: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    side_rewards: Mapping[str, float] = field(default_factory=dict)


def system(content: str) -> Message:
    """A system message."""
    return Message("system", content)


def user(content: str) -> Message:
    """A user message."""
    return Message("user", content)


def assistant(content: str) -> Message:
    """What the agent is shown as its own, such as a worked example; never trained on."""
    return Message("assistant", content)


def to(conversation: str, *messages: Message) -> list[Message]:
    """Messages of another conversation, such as a sub-agent's; "" is the main one.

    It begins with the first message that it is sent. Whoever the last message of an
    observation is to speaks next.
    """
    return [replace(message, conversation=conversation) for message in messages]


def anew(*messages: Message) -> list[Message]:
    """Messages with which their conversation begins anew; what was said before is forgotten.

    What was said until then stays in the trajectory, as a history that trains too.
    """
    return [replace(messages[0], begins_history=True), *messages[1:]]


def tool_result(call: ToolCall, content: str) -> Message:
    """The answer to a tool call."""
    return Message("tool", content, tool_call_id=call.id, name=call.name)
