"""Episodes in full, before and after, side by side."""

from __future__ import annotations

from html import escape

from podium.cli import traces
from podium.cli.html_report.analysis import pairs
from podium.cli.html_report.collect import ReportData
from podium.cli.html_report.rewards import reward_of
from podium.core import turns
from podium.types.v1 import trajectory_pb2 as pb


def episode_pairs(data: ReportData) -> str:
    """The same scenarios, attempted by the first and the last version."""
    chosen = pairs(data.before, data.after, data.shown)
    if not chosen:
        return ""
    rows = "".join(
        f'<div class="pair"><h3>{escape(before.scenario_id)}</h3><div class="grid2">'
        f"{_episode('before', before)}{_episode('after', after)}</div></div>"
        for before, after in chosen
    )
    return (
        "<h2>Episodes, before and after</h2>"
        '<p class="soft">The same held-out scenarios at the training temperature; those that '
        f"training turned from failure to success come first.</p>{rows}"
    )


def _episode(when: str, episode: pb.Trajectory) -> str:
    verdict = ""
    if "success" in episode.metrics:
        good = episode.metrics["success"] >= 1.0
        verdict = (
            f'<span class="verdict {"good" if good else "bad"}">'
            f"{'solved' if good else 'not solved'}</span>"
        )
    told = "".join(
        _history(history, part, later=index > 0)
        for index, (history, part) in enumerate(
            zip(episode.histories, turns.parts_of(episode), strict=True)
        )
    )
    failure = (
        f"<pre>{escape(f'{episode.failure.type}: {episode.failure.message}')}</pre>"
        if episode.failure.type
        else ""
    )
    return (
        f'<div class="episode">{verdict}<h3>{when}</h3>{told}{failure}'
        f'{_rewards(episode)}{_judge(episode)}<p class="end">{escape(_ending(episode))}'
        f"{_trace(episode)}</p></div>"
    )


def _history(history: pb.History, part: turns.HistoryPart, *, later: bool) -> str:
    """Its messages, but those that the one before has; each turn with what it was paid."""
    shown = [
        _message(message, _paid(part.turns.get(at)), first=at == 0)
        for at, message in enumerate(history.messages)
        if at >= part.repeated
    ]
    if later and shown:
        of = f": {history.conversation}" if history.conversation else ""
        shown.insert(0, f'<p class="end">a new history{escape(of)}</p>')
    return "".join(shown)


def _paid(turn: turns.Turn | None) -> str:
    """`turn 2 · reward +0.5`; nothing for what is no turn."""
    if turn is None:
        return ""
    reward = f" · reward {turn.step.reward:+g}" if turn.step is not None else ""
    return f" · turn {turn.number}{reward}"


def _message(message: pb.Message, paid: str, *, first: bool) -> str:
    role = pb.Role.Name(message.role).removeprefix("ROLE_").lower()
    text = message.content
    calls = [f"-> {call.name}({call.arguments_json})" for call in message.tool_calls]
    body = f"<pre>{escape(chr(10).join(filter(None, [text, *calls])))}</pre>"
    if first and role == "system":
        # Every episode begins with the same instructions.
        body = f"<details><summary>instructions</summary>{body}</details>"
    thoughts = ""
    if message.reasoning:
        inside = f"<pre>{escape(message.reasoning)}</pre>"
        thoughts = f"<details><summary>thoughts</summary>{inside}</details>"
        if not (text or calls):
            body = ""
    return f'<div class="turn {role}"><span class="who">{role}{paid}</span>{thoughts}{body}</div>'


def _rewards(episode: pb.Trajectory) -> str:
    """What each step paid, and the episode as a whole; nothing when no step did."""
    paid = [step.reward for step in episode.transitions]
    if not any(paid):
        return ""
    parts = [f"{reward:g}" for reward in paid]
    if episode.score_reward:
        parts.append(f"and {episode.score_reward:g} in the end")
    return f'<p class="end">rewards of the steps: {" · ".join(parts)}</p>'


def _judge(episode: pb.Trajectory) -> str:
    """The judge's words; nothing where none judged, or said why."""
    if not episode.explanation:
        return ""
    return (
        '<div class="turn judge"><span class="who">the judge</span>'
        f"<pre>{escape(episode.explanation)}</pre></div>"
    )


def _trace(episode: pb.Trajectory) -> str:
    """The episode's trace: a link where its address is known."""
    if not episode.trace_id:
        return ""
    name = f"trace {escape(episode.trace_id)}"
    address = traces.link(episode)
    return " · " + (f'<a href="{escape(address)}">{name}</a>' if address else name)


def _ending(episode: pb.Trajectory) -> str:
    stop = pb.StopReason.Name(episode.stop_reason).removeprefix("STOP_REASON_").lower()
    facts = [stop.replace("_", " ")]
    if (reward := reward_of(episode)) is not None:
        facts.append(f"reward {reward:.3f}")
    facts.extend(f"{name} {episode.metrics[name]:g}" for name in sorted(episode.metrics))
    return " · ".join(facts)
