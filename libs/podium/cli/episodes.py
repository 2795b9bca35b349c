"""An episode as text, for people."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from podium.cli import judged, traces
from podium.cli.ranges import Range
from podium.cli.safe_text import one_line, visible
from podium.cli.views import duration
from podium.core.outside import plain_of
from podium.core.token_records import spans_by_turn
from podium.core.turns import parts_of
from podium.types.v1 import trajectory_pb2 as pb

if TYPE_CHECKING:
    from podium.cli.pieces import Pieces

_COLOURS = {
    pb.ROLE_SYSTEM: "magenta",
    pb.ROLE_USER: "cyan",
    pb.ROLE_ASSISTANT: "green",
    pb.ROLE_TOOL: "yellow",
}
_STATE_CHARS = 300


def conversation(trajectory: pb.Trajectory) -> str:
    """Every message of an episode once, each under its role, and how it ended."""
    lines: list[str] = []
    for part in _parts(trajectory):
        if part.index and part.turns:
            lines.append(click.style(f"(history {part.index + 1})", dim=True))
        for turn in part.turns:
            for message in turn.messages:
                lines.extend(_message(message))
    if trajectory.failure.type:
        failure = trajectory.failure
        lines.append(visible(f"raised {failure.type}: {failure.message}"))
    lines.append(click.style(f"[{ending(trajectory)}]", dim=True))
    # Of a trace that nobody keeps there is nothing to be seen.
    if trajectory.root_span_id:
        shown = traces.link(trajectory) or trajectory.trace_id
        lines.append(click.style(f"trace {one_line(shown)}", dim=True))
    return "\n".join(lines)


def ending(trajectory: pb.Trajectory) -> str:
    """How an episode ended, with its numbers: `terminated, reward 1.000, success 1`."""
    stop = pb.StopReason.Name(trajectory.stop_reason).removeprefix("STOP_REASON_").lower()
    parts = [stop.replace("_", " ")]
    if trajectory.HasField("reward"):
        parts.append(f"reward {trajectory.reward:.3f}")
    parts.extend(
        f"{one_line(name)} {trajectory.metrics[name]:g}" for name in sorted(trajectory.metrics)
    )
    return ", ".join(parts)


def role_name(role: pb.Role.ValueType) -> str:
    """`system`, `user`, `assistant`, `tool`."""
    return pb.Role.Name(role).removeprefix("ROLE_").lower()


def episode_lines(
    trajectory: pb.Trajectory,
    *,
    turns: Range | None = None,
    pieces: Pieces | None = None,
) -> Iterator[str]:
    """An episode as it went: its numbers, its turns, and what was raised.

    Args:
        turns: only these, counted from 1 over all histories; 0 is what came before the first.
        pieces: what tokens read as; with it they are shown too.
    """
    parts = list(_parts(trajectory))
    spoken = max((turn.number for part in parts for turn in part.turns), default=0)
    wanted = turns.of(spoken) if turns else None
    yield from _facts(trajectory)
    for part in parts:
        shown = [turn for turn in part.turns if wanted is None or turn.number in wanted]
        if not shown and wanted is not None:
            continue
        yield ""
        if len(parts) > 1 or part.history.conversation:
            yield click.style(_title(part, len(parts)), dim=True)
        for turn in shown:
            yield from _turn(turn)
        if pieces is not None:
            yield from _token_lines(part, shown, pieces)
    yield ""
    if trajectory.failure.type:
        yield click.style(visible(f"raised {trajectory.failure.type}"), fg="red", bold=True)
        yield textwrap.indent(visible(trajectory.failure.message), "  ")
        if trajectory.failure.traceback:
            yield textwrap.indent(visible(trajectory.failure.traceback.rstrip()), "  ")
    yield click.style(f"[{ending(trajectory)}]", dim=True)


@dataclass
class _Turn:
    """What the policy said, and what came of it until it spoke again; number 0 is before that."""

    number: int
    spoken: bool = False
    """Whether it begins with the policy's words; not what a history opens with."""
    messages: list[pb.Message] = field(default_factory=list)
    step: pb.Transition | None = None


@dataclass
class _Part:
    """A history, without the messages that it shares with the one before of its conversation."""

    index: int
    history: pb.History
    repeated: int
    turns: list[_Turn]


def _parts(trajectory: pb.Trajectory) -> Iterator[_Part]:
    number = 0
    for index, (history, part) in enumerate(
        zip(trajectory.histories, parts_of(trajectory), strict=True)
    ):
        turns = [_Turn(number)]
        for at, message in enumerate(history.messages[part.repeated :], start=part.repeated):
            if (turn := part.turns.get(at)) is not None:
                number = turn.number
                turns.append(_Turn(number, spoken=True, step=turn.step))
            turns[-1].messages.append(message)
        yield _Part(index, history, part.repeated, [turn for turn in turns if turn.messages])


def _facts(trajectory: pb.Trajectory) -> Iterator[str]:
    """What is known of the episode as a whole, a line a fact."""
    parts = trajectory.reward_parts
    reward = f"{trajectory.reward:g}" if trajectory.HasField("reward") else "none"
    if parts:
        reward += f"  ({', '.join(f'{one_line(name)} {parts[name]:g}' for name in sorted(parts))})"
    paid = ""
    if trajectory.HasField("environment_reward"):
        paid = f"{trajectory.environment_reward:g}"
        if trajectory.score_reward:
            paid += f", {trajectory.score_reward:g} of it for the whole episode"
    took = ""
    if trajectory.HasField("start_time") and trajectory.HasField("end_time"):
        nanoseconds = trajectory.end_time.ToNanoseconds() - trajectory.start_time.ToNanoseconds()
        took = duration(max(nanoseconds / 1e9, 0))
    tools = {tool.name: None for history in trajectory.histories for tool in history.tools}
    metrics = (f"{one_line(n)} {trajectory.metrics[n]:g}" for n in sorted(trajectory.metrics))
    versions = {
        f"{span.policy or 'base'}@{span.weights_version}": None
        for history in trajectory.histories
        for span in history.tokens.spans
    }
    facts = {
        "id": trajectory.id,
        "env": trajectory.environment,
        "scenario": trajectory.scenario_id,
        "side": trajectory.side,
        "reward": reward,
        "paid": paid,
        "metrics": ", ".join(metrics),
        "weights": ", ".join(versions),
        "tools": ", ".join(tools),
        "took": took,
        "trace": traces.link(trajectory) or trajectory.trace_id,
        "info": _json(plain_of(trajectory.info)) if trajectory.info.fields else "",
    }
    for name, value in facts.items():
        if value:
            yield f"{click.style(f'{name:<9}', bold=True)} {one_line(value)}"
    if trajectory.explanation:
        yield click.style("judge", bold=True)
        yield textwrap.indent(visible(trajectory.explanation), "  ")
    for line in judged.opinions(trajectory):
        yield click.style(f"  {line}", dim=True)


def _title(part: _Part, count: int) -> str:
    title = f"history {part.index + 1} of {count}"
    if part.history.conversation:
        title += f", conversation {one_line(part.history.conversation)}"
    if part.repeated:
        title += f"; its first {part.repeated} messages are those of the one before"
    return f"({title})"


def _turn(turn: _Turn) -> Iterator[str]:
    for at, message in enumerate(turn.messages):
        head = ""
        if turn.spoken and at == 0:
            head = f"turn {turn.number}"
            if turn.step is not None:
                head += f", reward {turn.step.reward:+g}"
        yield from _message(message, head)
    if turn.step is not None and turn.step.state.fields:
        text = _json(plain_of(turn.step.state))
        cut = text if len(text) <= _STATE_CHARS else f"{text[:_STATE_CHARS]}… ({len(text)})"
        yield click.style(f"  state {one_line(cut)}", dim=True)
    if turn.step is not None and (turn.step.terminated or turn.step.truncated):
        word = "terminated" if turn.step.terminated else "truncated"
        yield click.style(f"  {word} by the environment", dim=True)


def _message(message: pb.Message, head: str = "") -> Iterator[str]:
    role = click.style(role_name(message.role), fg=_COLOURS.get(message.role), bold=True)
    name = f" {one_line(message.name)}" if message.name else ""
    yield f"{role}{name}" + (click.style(f"  {head}", dim=True) if head else "")
    if message.reasoning:
        yield click.style("  thought:", dim=True)
        # Every line is marked: no thought can pass for what was said.
        marked = textwrap.indent(visible(message.reasoning), "  ~ ", lambda _: True)
        yield click.style(marked, dim=True)
    if message.content:
        yield textwrap.indent(visible(message.content), "  ")
    for call in message.tool_calls:
        yield f"  -> {one_line(call.name)}({visible(call.arguments_json)})"
    for reason in message.malformed_calls:
        yield click.style(f"  not read as a call: {one_line(reason)}", fg="red")


def _token_lines(part: _Part, shown: Sequence[_Turn], pieces: Pieces) -> Iterator[str]:
    """The tokens of a history: what was sampled one a line, the context between as ids."""
    record = part.history.tokens
    if not record.token_ids:
        yield click.style("(no tokens: the trained policy said nothing here)", dim=True)
        return
    logprobs = iter(record.logprobs)
    end = 0
    spoken = [turn.number for turn in part.turns if turn.spoken]
    said = [turn.number for turn in shown if turn.spoken]
    turns = spans_by_turn(record)
    by_turn = len(spoken) == len(turns)
    for index, span in ((index, span) for index, spans in enumerate(turns) for span in spans):
        mine = [next(logprobs, None) for _ in range(span.length)]
        here = not by_turn or spoken[index] in said
        if here and span.start > end:
            yield from _context(record.token_ids[end : span.start], end, pieces)
        end = span.start + span.length
        if here:
            yield from _sampled(record.token_ids, span, mine, pieces)
    if end < len(record.token_ids) and (not by_turn or spoken[-1:] == said[-1:]):
        yield from _context(record.token_ids[end:], end, pieces)


def _context(ids: Sequence[int], start: int, pieces: Pieces) -> Iterator[str]:
    title = f"context, tokens {start} to {start + len(ids) - 1}"
    yield click.style(title, dim=True)
    words = " ".join(map(str, ids))
    yield from textwrap.wrap(words, 96, initial_indent="  ", subsequent_indent="  ")
    if text := pieces.text(ids):
        yield textwrap.indent(visible(text), "  | ", lambda _: True)


def _sampled(
    ids: Sequence[int],
    span: pb.SampledSpan,
    logprobs: Iterable[float | None],
    pieces: Pieces,
) -> Iterator[str]:
    # A part of a turn that went on under other weights has none.
    reason = pb.FinishReason.Name(span.finish_reason).removeprefix("FINISH_REASON_").lower()
    finish = f", finish {reason}" if span.finish_reason else ""
    title = (
        f"sampled, tokens {span.start} to {span.start + span.length - 1}: "
        f"{span.policy or 'base'}@{span.weights_version}, temperature {span.temperature:g}"
        f"{finish}" + (f", request {span.request_id}" if span.request_id else "")
    )
    yield click.style(one_line(title), fg=_COLOURS[pb.ROLE_ASSISTANT])
    for offset, logprob in enumerate(logprobs):
        place = span.start + offset
        token = ids[place] if place < len(ids) else -1
        number = "-" if logprob is None else f"{logprob:.4f}"
        yield f"  {place:>6} {token:>7} {number:>9}  {one_line(pieces.piece(token))}".rstrip()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
