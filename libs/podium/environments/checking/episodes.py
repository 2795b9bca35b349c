"""What episodes tell of an environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from podium.core.errors import InvalidArgumentError
from podium.environment.v1 import environment_service_pb2 as pb
from podium.environments.checking.findings import Finding, error, warning
from podium.environments.checking.plays import Bounds, Play
from podium.environments.checking.tools import tool_findings
from podium.environments.serving.convert import observation_from_pb
from podium.environments.task_file import line_of
from podium.environments.types import Message
from podium.types.v1 import trajectory_pb2 as types_pb

_SHOWN = 60


def failure_findings(plays: Sequence[Play], folder: Path, bounds: Bounds) -> Iterator[Finding]:
    """What was raised, each thing once."""
    told: set[tuple[str, str, str]] = set()
    for play in plays:
        if play.failure is None:
            continue
        line = line_of(play.failure, folder)
        kind = type(play.failure).__name__
        known = (play.failed_in, kind, line or str(play.failure))
        if known in told:
            continue
        told.add(known)
        count = sum(
            other.failed_in == play.failed_in and type(other.failure) is type(play.failure)
            for other in plays
        )
        yield _failure(play, kind, line, f" ({count} of {len(plays)} episodes)", bounds)


def _failure(play: Play, kind: str, line: str, often: str, bounds: Bounds) -> Finding:
    where = play.failed_in
    if play.hung:
        said = f"{where} does not return within {bounds.hung_seconds:g} s"
        return error(where, said + often, "Bound what it waits for.", line)
    if isinstance(play.failure, InvalidArgumentError) and where == "reset":
        violations = "; ".join(map(str, play.failure.violations)) or play.failure.message
        said = f"reset refuses the scenario {play.scenario.id!r}: {violations}"
        return error(where, said + often, line=line)
    if where == "step" and play.said:
        reply = _reply(play.said[-1])
        said = f"step raises {kind} for the reply {reply}: {play.failure}"
        advice = "Attempts that raise do not train. Give what a model may write a low reward."
        return error(where, said + often, advice, line)
    said = f"{where} raises {kind} for the scenario {play.scenario.id!r}: {play.failure}"
    return error(where, said + often, line=line)


def _reply(message: Message) -> str:
    if message.tool_calls:
        call = message.tool_calls[0]
        return f"{call.name}({call.arguments_json})"
    text = message.content
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def message_findings(plays: Sequence[Play]) -> Iterator[Finding]:
    """What the model would be shown: no text, wrong tools, calls without an answer."""
    found: dict[tuple[str, str], Finding] = {}
    for play in plays:
        for each in _shown_findings(play):
            # Tools on offer at each turn are wrong in each turn alike.
            found.setdefault((each.what, each.said), each)
    yield from found.values()


def _shown_findings(play: Play) -> Iterator[Finding]:
    for turn, seen in enumerate(play.seen):
        what = "step" if turn else "reset"
        over = play.ended and turn == len(play.seen) - 1
        yield from tool_findings(observation_from_pb(seen).tools)
        if over:
            continue
        if not seen.messages:
            yield error(
                what,
                f"{what} gives no message, so that the model has nothing to answer",
                "Give one, or end the episode: terminated=True."
                if turn
                else "Observation([user(text)]) is what the model reads first.",
            )
        elif not any(message.content.strip() for message in seen.messages):
            yield error(what, f"{what} gives an empty text for the model to read")
        elif seen.messages[-1].role == types_pb.ROLE_ASSISTANT:
            yield error(what, f"the last message of {what} is the model's own, not one to answer")
        if turn:
            yield from _unanswered(play.said[turn - 1], seen)


def _unanswered(said: Message, seen: pb.Observation) -> Iterator[Finding]:
    answered = {message.tool_call_id for message in seen.messages}
    for call in said.tool_calls:
        if call.id not in answered:
            yield warning(
                "tools",
                f"a call of the tool {call.name!r} gets no answer",
                "Answer each call: tool_result(call, text).",
            )


def differing(first: Play, again: Play) -> list[Finding]:
    """How an episode differs from one of the same scenario, seed and replies."""
    seeded = "All that is random must come from the seed, or attempts at a scenario cannot be "
    advice = seeded + "compared: random.Random(seed)."
    if again.failure is not None:
        said = f"the same episode played again fails in {again.failed_in}: {again.failure}"
        return [error(again.failed_in, said, advice)]
    if first.seen[0] != again.seen[0]:
        said = f"reset of {first.scenario.id!r} differs from time to time with the same seed"
        return [error("reset", f"{said}: {_first_difference(first, again)}", advice)]
    if first.seen != again.seen or first.rewards != again.rewards or first.total != again.total:
        said = f"the same replies to {first.scenario.id!r} with the same seed lead elsewhere"
        return [error("step", said, advice)]
    return []


def _first_difference(first: Play, again: Play) -> str:
    texts = [" ".join(m.content for m in play.seen[0].messages) for play in (first, again)]
    if texts[0] == texts[1]:
        return "not in its text"
    at = next(
        (i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts))
    )
    one, other = (text[max(0, at - 20) : at + 20] for text in texts)
    return f"{one!r} and {other!r}"


def reward_findings(guessed: Sequence[Play], coached: Sequence[Play]) -> Iterator[Finding]:
    """Whether episodes can earn different things."""
    well = [play for play in [*guessed, *coached] if play.failure is None]
    earned = {play.total for play in well}
    # Where most fail, the few that are left tell nothing.
    if len(well) < 2 or len(earned) > 1 or 2 * len(well) < len(guessed) + len(coached):
        return
    said = f"all {len(well)} episodes earned {well[0].total:g}"
    advice = (
        "Attempts that all earn the same teach nothing. Give a part of the reward for what leads "
        "to the rest of it, such as a reply in the right form."
    )
    if any(play.failure is None for play in coached):
        yield error("reward", f"{said}, the baselines' too", advice)
    else:
        yield warning("reward", f"{said}; guesses may be too poor to earn more", advice)


def ending_findings(plays: Sequence[Play], bounds: Bounds) -> Iterator[Finding]:
    """Whether episodes end."""
    well = [play for play in plays if play.failure is None]
    if well and not any(play.ended for play in well):
        yield warning(
            "end",
            f"none of {len(well)} episodes ended within {bounds.turns} turns",
            "Return StepResult(…, terminated=True) when the task is over, or truncated=True after "
            "too many turns; a job cuts an episode at rollout.episode.max_turns.",
        )


def time_findings(plays: Sequence[Play], bounds: Bounds) -> Iterator[Finding]:
    """Whether something is slow."""
    slow = [play for play in plays if play.slowest > bounds.slow_seconds and not play.hung]
    if slow:
        worst = max(slow, key=lambda play: play.slowest)
        yield warning(
            "time",
            f"a {worst.slowest_in} took {worst.slowest:.1f} s; those of {len(slow)} of "
            f"{len(plays)} episodes took more than {bounds.slow_seconds:g} s",
            "Many episodes run at once in one process: await what waits, and put what computes "
            "into asyncio.to_thread.",
        )
