"""Which of several answers to one prompt an agent went on with.

They are the choices of a request with n above 1, or the answers to a request that
was sent again: by a client that never got the first, or did not like it. Only what
the agent went on with has earned its reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training.words import Words, gist


@dataclass(frozen=True)
class Answer:
    """One of the answers."""

    call: inference_pb.CapturedCall
    went_on: bool
    """Whether a later prompt begins with all of its tokens."""


@dataclass
class TrainedChoices:
    """The places of those that train, and whether that could be told."""

    kept: list[int] = field(default_factory=list)
    undecided: int = 0
    """Requests of whose choices none trains, as nothing tells which went on."""


def choose(answers: Sequence[Answer], said: Sequence[Sequence[Words]]) -> TrainedChoices:
    """Of the answers to one prompt, oldest first, those that the agent went on with.

    It is told by a prompt that begins with the answer's tokens; else by a conversation that
    goes on with its words; else by one in which they stand. Where nothing tells, a request's
    choices that all say the same count as one, others do not train; and of requests that came
    one after the other the last one's answer is the one that its sender waited for.

    Args:
        said: the gists of all later requests' conversations, and of those that the client noted.
    """
    continued = [place for place, answer in enumerate(answers) if answer.went_on]
    if not continued:
        continued = _by_words(answers, said)
    if continued:
        return TrainedChoices(continued)
    requests: dict[str, list[int]] = {}
    for place, answer in enumerate(answers):
        requests.setdefault(answer.call.generation.request_id, []).append(place)
    asked = list(requests.values())
    if not _at_once(answers, asked):
        asked = asked[-1:]
    chosen = TrainedChoices()
    for places in asked:
        if len({_reply(answers[place]) for place in places}) == 1:
            chosen.kept.append(places[0])
        else:
            chosen.undecided += 1
    return chosen


def _by_words(answers: Sequence[Answer], said: Sequence[Sequence[Words]]) -> list[int]:
    """The places of those whose words were said again; of equal ones the last."""
    before = gist(answers[0].call.messages)
    replies = {_reply(answer): place for place, answer in enumerate(answers)}
    going_on = {
        each[len(before)]
        for each in said
        if len(each) > len(before) and list(each[: len(before)]) == before
    }
    found = sorted(place for reply, place in replies.items() if reply in going_on)
    if found:
        return found
    old = Counter(before)
    counts = [Counter(each) for each in said]
    return sorted(
        place
        for reply, place in replies.items()
        if any(each[reply] > old[reply] for each in counts)
    )


def _reply(answer: Answer) -> Words:
    (reply,) = gist([answer.call.reply])
    return reply


def _at_once(answers: Sequence[Answer], requests: Sequence[Sequence[int]]) -> bool:
    """Whether each request began before another one's answer was there."""
    calls = sorted(
        (answers[places[0]].call for places in requests), key=lambda c: c.start_time.ToNanoseconds()
    )
    ends = [call.end_time.ToNanoseconds() for call in calls]
    return all(
        call.HasField("start_time") and call.start_time.ToNanoseconds() < min(ends[:place])
        for place, call in enumerate(calls)
        if place
    )
