"""An episode as text, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from podium.types.v1 import trajectory_pb2 as pb

_COLOURS = {
    pb.ROLE_SYSTEM: "magenta",
    pb.ROLE_USER: "cyan",
    pb.ROLE_ASSISTANT: "green",
    pb.ROLE_TOOL: "yellow",
}


def conversation(trajectory: pb.Trajectory) -> str:
    """Every message of an episode, each under its role, and how it ended."""
    lines: list[str] = []
    for index, history in enumerate(trajectory.histories):
        if index:
            lines.append(click.style(f"(history {index + 1})", dim=True))
        for message in history.messages:
            lines.extend(_message(message))
    if trajectory.failure.type:
        lines.append(f"raised {trajectory.failure.type}: {trajectory.failure.message}")
    lines.append(click.style(f"[{ending(trajectory)}]", dim=True))
    return "\n".join(lines)


def ending(trajectory: pb.Trajectory) -> str:
    """How an episode ended, with its numbers: `terminated, reward 1.000, success 1`."""
    stop = pb.StopReason.Name(trajectory.stop_reason).removeprefix("STOP_REASON_").lower()
    parts = [stop.replace("_", " ")]
    if trajectory.HasField("reward"):
        parts.append(f"reward {trajectory.reward:.3f}")
    parts.extend(f"{name} {trajectory.metrics[name]:g}" for name in sorted(trajectory.metrics))
    return ", ".join(parts)


def role_name(role: pb.Role.ValueType) -> str:
    """`system`, `user`, `assistant`, `tool`."""
    return pb.Role.Name(role).removeprefix("ROLE_").lower()


def _message(message: pb.Message) -> Iterator[str]:
    head = role_name(message.role)
    yield click.style(head, fg=_COLOURS.get(message.role), bold=True)
    if message.content:
        yield textwrap.indent(message.content, "  ")
    for call in message.tool_calls:
        yield f"  -> {call.name}({call.arguments_json})"
