"""Episodes to read: a row each in a list, and one with its turns, in answers of a bounded size.

What a model or an environment says has no bound. A text is cut where it gets long, and its rest is
asked for by its place; of an episode with very many messages a part is shown at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from podium.core import trace_links, turns
from podium.core.asked_judges import request_about
from podium.core.errors import InvalidArgumentError, NotFoundError, Violation
from podium.types.v1 import trajectory_pb2 as pb

from podium_console.domain import views
from podium_console.domain.series import numbers, rounded

TEXT = 4000
"""Characters of one text that are shown at once."""
SLICE = 100_000
"""Characters of a text that one further request brings."""
_MESSAGES_BYTES = 500_000
_SMALL = 300
_TOOLS, _TRANSITIONS, _OPINIONS = 64, 1000, 64
_ID = re.compile(r"(?P<job>[^/]+)/(?P<kind>[sv])(?P<number>[0-9]{1,18})(-[^/]+)?/.+")


class EpisodePlace(NamedTuple):
    """Where a job keeps an episode."""

    job: str
    step: int
    """Or the version that was evaluated."""
    evaluation: bool


def place(trajectory_id: str) -> EpisodePlace:
    """Where an episode is, by its id.

    Raises:
        InvalidArgumentError: it is no id of an episode.
    """
    match = _ID.fullmatch(trajectory_id)
    if match is None:
        raise InvalidArgumentError(
            violations=[
                Violation("id", f"got {trajectory_id[:100]!r}; allowed: JOB/s5/g3/t2 and the like")
            ]
        )
    return EpisodePlace(match["job"], int(match["number"]), match["kind"] == "v")


def row(found: pb.Trajectory) -> dict[str, Any]:
    """An episode in a list."""
    begun, ended = views.seconds(found.start_time), views.seconds(found.end_time)
    return {
        "id": found.id,
        "group": found.group_id,
        "scenario": views.cut(found.scenario_id, _SMALL),
        "attempt": found.attempt,
        "side": found.side,
        "reward": _optional(found, "reward"),
        "environment_reward": _optional(found, "environment_reward"),
        "success": rounded(found.metrics["success"]) if "success" in found.metrics else None,
        "stop_reason": pb.StopReason.Name(found.stop_reason).removeprefix("STOP_REASON_").lower(),
        "failure": views.cut(f"{found.failure.type}: {found.failure.message}", _SMALL)
        if found.HasField("failure")
        else "",
        "turns": turns.count(found),
        "tokens": sum(s.length for h in found.histories for s in h.tokens.spans),
        "seconds": rounded(ended - begun) if begun and ended else None,
        "explanation": views.cut(found.explanation, _SMALL),
    }


def whole(found: pb.Trajectory, start: int = 0, trace_url: str = "") -> dict[str, Any]:
    """An episode with its messages from the `start`th; `next` says where the others begin.

    A message that a later history repeats is told once, and counted where it is repeated.

    `trace_url` is the template of the address of its trace.
    """
    shown, following = _window(found, start)
    answer = {**row(found), "start": start, "next": following, "messages": shown}
    if start:
        return answer
    return answer | {
        "parts": numbers(found.reward_parts.items()),
        "metrics": numbers(found.metrics.items()),
        "explanation": _text(found.explanation),
        "opinions": [
            _opinion(judgement.part, opinion)
            for judgement in found.judgements
            for opinion in judgement.opinions
        ][:_OPINIONS],
        "traceback": views.cut(found.failure.traceback, 20_000),
        "trace_id": found.trace_id,
        "traced": bool(found.root_span_id),
        "trace_url": trace_links.link(trace_url, found),
        "info": _json(found.info, TEXT),
        "tools": [_tool(tool) for tool in _tools(found)],
        "conversations": [history.conversation for history in found.histories],
        "versions": sorted({s.weights_version for h in found.histories for s in h.tokens.spans}),
        "transitions": [
            {
                "reward": rounded(each.reward),
                "ends": _ends(each),
                "state": _json(each.state, _SMALL),
            }
            for each in found.transitions[:_TRANSITIONS]
        ],
        "score_reward": rounded(found.score_reward),
    }


def text_slice(found: pb.Trajectory, message: int, part: str, offset: int) -> dict[str, Any]:
    """The rest of a text that was cut: of a message's `content` or `reasoning`, of the arguments
    of its call `call:N`, or of the judge's `explanation`.

    Raises:
        NotFoundError: there is no such text.
    """
    text = found.explanation if part == "explanation" else _part(found, message, part)
    end = offset + SLICE
    return {"text": text[offset:end], "next": end if end < len(text) else None, "chars": len(text)}


def _part(found: pb.Trajectory, index: int, part: str) -> str:
    for at, (_, message) in enumerate(_messages(found)):
        if at != index:
            continue
        if part == "content":
            return message.content
        if part == "reasoning":
            return message.reasoning
        number = part.removeprefix("call:")
        if number.isdecimal() and int(number) < len(message.tool_calls):
            return message.tool_calls[int(number)].arguments_json
    raise NotFoundError("the episode has no such text")


def _window(found: pb.Trajectory, start: int) -> tuple[list[dict[str, Any]], int | None]:
    shown: list[dict[str, Any]] = []
    size, at = 0, -1
    for place, (history, part) in enumerate(
        zip(found.histories, turns.parts_of(found), strict=True)
    ):
        for within, message in enumerate(history.messages):
            at += 1
            if at < start or within < part.repeated:
                continue
            plain = _message(at, place, message) | {"repeated": part.repeated}
            if (turn := part.turns.get(within)) is not None:
                plain["turn"] = _turn(turn)
            size += len(json.dumps(plain, ensure_ascii=False).encode())
            if shown and size > _MESSAGES_BYTES:
                return shown, at
            shown.append(plain)
    return shown, None


def _turn(turn: turns.Turn) -> dict[str, Any]:
    """Which turn a message is, and what the environment paid for it; null where it told nothing."""
    step = turn.step
    return {
        "number": turn.number,
        "reward": rounded(step.reward) if step is not None else None,
        "ends": _ends(step) if step is not None else "",
    }


def _ends(step: pb.Transition) -> str:
    return "terminated" if step.terminated else "truncated" if step.truncated else ""


def _messages(found: pb.Trajectory) -> Iterator[tuple[int, pb.Message]]:
    for at, history in enumerate(found.histories):
        for message in history.messages:
            yield at, message


def _message(index: int, history: int, message: pb.Message) -> dict[str, Any]:
    return {
        "index": index,
        "history": history,
        "role": pb.Role.Name(message.role).removeprefix("ROLE_").lower(),
        "name": views.cut(message.name, _SMALL),
        "reasoning": _text(message.reasoning),
        "content": _text(message.content),
        "calls": [
            {"name": call.name, "arguments": _text(call.arguments_json)}
            for call in message.tool_calls[:_TOOLS]
        ],
        "malformed": [views.cut(each, _SMALL) for each in message.malformed_calls[:_TOOLS]],
    }


def _opinion(part: str, found: pb.JudgeOpinion) -> dict[str, Any]:
    attempt, request = request_about(found)
    return {
        "part": part,
        "model": views.cut(found.model, _SMALL),
        "address": views.cut(found.address, _SMALL),
        "failure": views.cut(found.failure, _SMALL),
        "score": rounded(attempt.score) if found.attempts else None,
        "place": attempt.place or None,
        "temperature": _optional(found, "temperature"),
        # A text: JavaScript has no whole numbers beyond 2^53.
        "seed": "" if request.seed is None else str(request.seed),
        "finish_reason": views.cut(request.finish_reason, _SMALL),
        "prompt_digest": request.prompt_digest,
        "order_seed": views.cut(found.order_seed, _SMALL),
        "refused": views.cut(", ".join(found.refused_parameters), _SMALL),
        "cached": found.cached,
    }


def _text(text: str) -> dict[str, Any]:
    return {"text": text[:TEXT], "chars": len(text)}


def _tools(found: pb.Trajectory) -> list[pb.Tool]:
    by_name = {tool.name: tool for history in found.histories for tool in history.tools}
    return list(by_name.values())[:_TOOLS]


def _tool(tool: pb.Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": views.cut(tool.description, 1000),
        "parameters": _json(tool.parameters, 1000),
    }


def _json(value: Struct, most: int) -> str:
    if not value.fields:
        return ""
    plain = json_format.MessageToDict(value)
    return views.cut(json.dumps(plain, ensure_ascii=False, indent=1), most)


def _optional(found: pb.Trajectory | pb.JudgeOpinion, name: str) -> float | None:
    return rounded(getattr(found, name)) if found.HasField(name) else None  # type: ignore[arg-type]
