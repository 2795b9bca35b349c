"""Captured calls put together into histories of exact tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import trajectory_pb2 as pb


@dataclass
class Joined:
    """The histories of a rollout under one policy, and what did not become part of them."""

    histories: list[pb.History] = field(default_factory=list)
    untrainable: list[str] = field(default_factory=list)
    """Why the sampled tokens of a call do not train, one a call; they are context alone."""
    aborted: int = 0
    """Calls that the agent did not wait for; they are left out."""


def join(calls: Iterable[inference_pb.CapturedCall], policy: str) -> Joined:
    """Histories from the calls of one rollout, oldest first.

    A call whose prompt begins with a whole history continues it, the longest
    such; any other begins a new one. So a sampled token stands in one history
    alone, and a template that writes earlier turns anew, a sub-agent, or a
    conversation that was compacted makes histories of its own. Of several
    choices of a call that nothing continues only the first is kept, as the
    agent cannot have used more of them than it went on with.

    Args:
        policy: the job whose tokens train; calls of others are left out.
    """
    result = Joined()
    open_: list[_Open] = []
    for call in calls:
        if call.generation.policy != policy:
            continue
        if call.generation.finish_reason == pb.FINISH_REASON_ABORTED:
            result.aborted += 1
            continue
        if call.untrainable:
            result.untrainable.append(call.untrainable)
        if call.repeated_request:
            _forget_unanswered(open_, call.prompt_token_ids)
        before = _continued(open_, call.prompt_token_ids)
        if before is None:
            before = _Open()
            open_.append(before)
        before.add(call)
    _drop_unused_choices(open_)
    result.histories = [history.message() for history in open_ if history.calls]
    return result


def merge(known: list[pb.History], other: pb.History) -> None:
    """Adds a conversation to the others, unless one of them is its beginning or its whole.

    By their words: roles, contents, and tool calls without their random ids. Of two of
    which one continues the other, the longer one stays, with the tools of both.
    """
    words = _words(other)
    if not words:
        return
    for place, each in enumerate(known):
        old = _words(each)
        short = min(len(old), len(words))
        if old[:short] != words[:short]:
            continue
        longer, shorter = (other, each) if len(words) > len(old) else (each, other)
        kept = pb.History(messages=longer.messages, tools=longer.tools or shorter.tools)
        known[place] = kept
        return
    known.append(other)


def _words(history: pb.History) -> list[tuple[object, ...]]:
    return [
        (
            message.role,
            message.content,
            message.name,
            tuple((call.name, call.arguments_json) for call in message.tool_calls),
        )
        for message in history.messages
    ]


@dataclass
class _Open:
    """A history that may go on."""

    calls: list[inference_pb.CapturedCall] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    """All of the last call's, prompt and sampled."""

    def add(self, call: inference_pb.CapturedCall) -> None:
        """Goes on with a call, whose prompt begins with all that there is."""
        self.calls.append(call)
        self.token_ids = [*call.prompt_token_ids, *call.generation.token_ids]

    def drop_last(self) -> None:
        """Forgets the last call."""
        self.calls.pop()
        before = self.calls[-1] if self.calls else inference_pb.CapturedCall()
        self.token_ids = [*before.prompt_token_ids, *before.generation.token_ids]

    def message(self) -> pb.History:
        """The history as the contract has it."""
        last = self.calls[-1]
        made = pb.History(messages=[*last.messages, last.reply], tools=last.tools)
        made.tokens.token_ids.extend([*last.prompt_token_ids, *last.generation.token_ids])
        for call in self.calls:
            generation = call.generation
            if not generation.token_ids or call.untrainable:
                continue
            made.tokens.spans.add(
                start=len(call.prompt_token_ids),
                length=len(generation.token_ids),
                policy=generation.policy,
                weights_version=generation.weights_version,
                temperature=call.temperature,
                finish_reason=generation.finish_reason,
                request_id=generation.request_id,
            )
            made.tokens.logprobs.extend(generation.logprobs)
        return made


def _forget_unanswered(histories: Sequence[_Open], prompt: Sequence[int]) -> None:
    """Takes out the call that is repeated now: its agent never got the answer."""
    whole = list(prompt)
    for history in reversed(histories):
        last = history.calls[-1] if history.calls else None
        if last is not None and list(last.prompt_token_ids) == whole:
            history.drop_last()
            return


def _drop_unused_choices(histories: Sequence[_Open]) -> None:
    """Of a call's choices, keeps those that were gone on with, or else the first."""
    choices: defaultdict[str, list[tuple[_Open, bool]]] = defaultdict(list)
    for history in histories:
        for place, call in enumerate(history.calls, 1):
            went_on = place < len(history.calls)
            choices[call.generation.request_id].append((history, went_on))
    for siblings in choices.values():
        if len(siblings) > 1:
            keep_first = not any(went_on for _, went_on in siblings)
            for history, went_on in siblings[keep_first:]:
                if not went_on:
                    history.drop_last()


def _continued(histories: Sequence[_Open], prompt: Sequence[int]) -> _Open | None:
    """The longest history that a prompt begins with, whole."""
    whole = list(prompt)
    fitting = [
        history
        for history in histories
        if 0 < len(history.token_ids) < len(whole)
        and whole[: len(history.token_ids)] == history.token_ids
    ]
    return max(fitting, key=lambda history: len(history.token_ids), default=None)
