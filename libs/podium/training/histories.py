"""Captured calls put together into histories of exact tokens."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from podium.core.token_records import sampled_spans
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training.choices import Answer, choose
from podium.training.words import Words, gist, words
from podium.types.v1 import trajectory_pb2 as pb


@dataclass
class Joined:
    """The histories of a rollout under one policy, and what did not become part of them."""

    histories: list[pb.History] = field(default_factory=list)
    untrainable: list[str] = field(default_factory=list)
    """Why the sampled tokens of a call do not train, one a call; they are context alone."""
    aborted: int = 0
    """Calls that the agent did not wait for; they are left out."""
    unused: int = 0
    """Answers that are left out because the agent went on with another one to the same prompt."""
    undecided: int = 0
    """Requests with several choices none of which trains: nothing tells which one went on."""
    splits: int = 0
    """Calls that go on with what was said before, but not with its tokens. All that came before
    is context again, in a history that begins anew."""


def join(
    calls: Iterable[inference_pb.CapturedCall],
    policy: str,
    noted: Sequence[Sequence[pb.Message]] = (),
) -> Joined:
    """Histories from the calls of one rollout, oldest first.

    A call whose prompt begins with a whole history continues it, the longest
    such; any other begins a new one. So a sampled token stands in one history
    alone, and a template that writes earlier turns anew, a sub-agent, or a
    conversation that was compacted makes histories of its own. Of several
    answers to one prompt those are kept that the agent went on with, see
    `choose`.

    Args:
        policy: the job whose tokens train; calls of others are left out.
        noted: conversations that the agent's author wrote down.
    """
    result = Joined()
    open_: list[_Open] = []
    answered = _Answered()
    calls = list(calls)
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
            result.splits += answered.split_by(call)
            before = _Open()
            open_.append(before)
        answered.add(call)
        before.add(call)
    _drop_unused(open_, calls, noted, result)
    result.histories = [history.message() for history in open_ if history.calls]
    return result


def merge(known: list[pb.History], other: pb.History) -> None:
    """Adds a conversation to the others, unless one of them is its beginning or its whole.

    By their words: roles, contents, and tool calls without their random ids. Of two of
    which one continues the other, the longer one stays, with the tools of both.
    """
    new = words(other.messages)
    if not new:
        return
    for place, each in enumerate(known):
        old = words(each.messages)
        short = min(len(old), len(new))
        if old[:short] != new[:short]:
            continue
        longer, shorter = (other, each) if len(new) > len(old) else (each, other)
        kept = pb.History(messages=longer.messages, tools=longer.tools or shorter.tools)
        known[place] = kept
        return
    known.append(other)


Prompt = tuple[bytes, float]


def _prompt(call: inference_pb.CapturedCall) -> Prompt:
    """Equal for the same request, and for its choices."""
    return array("q", call.prompt_token_ids).tobytes(), call.temperature


class _Answered:
    """Calls by what had been said at their ends, to know those that go on with other tokens."""

    def __init__(self) -> None:
        self._by_words: dict[tuple[Words, ...], list[inference_pb.CapturedCall]] = {}
        self._prompts: set[Prompt] = set()

    def add(self, call: inference_pb.CapturedCall) -> None:
        """Takes one."""
        self._prompts.add(_prompt(call))
        said = tuple(gist([*call.messages, call.reply]))
        self._by_words.setdefault(said, []).append(call)

    def split_by(self, call: inference_pb.CapturedCall) -> bool:
        """Whether the words of a new history's first call go on with one of these.

        One of whose tokens it goes on with too is a branch, and another answer to the same
        prompt is none of either.
        """
        messages = gist(call.messages)
        last = max((n for n, m in enumerate(messages) if m[0] == pb.ROLE_ASSISTANT), default=-1)
        found = self._by_words.get(tuple(messages[: last + 1]), ())
        if not found or _prompt(call) in self._prompts:
            return False
        prompt = list(call.prompt_token_ids)
        wholes = ([*each.prompt_token_ids, *each.generation.token_ids] for each in found)
        return not any(prompt[: len(whole)] == whole for whole in wholes)


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
            start = len(call.prompt_token_ids)
            made.tokens.spans.extend(sampled_spans(generation, start, call.temperature))
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


def _drop_unused(
    histories: Sequence[_Open],
    calls: Sequence[inference_pb.CapturedCall],
    noted: Sequence[Sequence[pb.Message]],
    result: Joined,
) -> None:
    """Of several answers to one prompt, keeps those that the agent went on with."""
    prompts: dict[Prompt, list[tuple[_Open, Answer]]] = {}
    for history in histories:
        for place, call in enumerate(history.calls, 1):
            answer = Answer(call, went_on=place < len(history.calls))
            prompts.setdefault(_prompt(call), []).append((history, answer))
    several = [each for each in prompts.values() if len(each) > 1]
    if not several:
        return
    orders = {id(call): order for order, call in enumerate(calls)}
    said = [gist(call.messages) for call in calls]
    notes = [gist(messages) for messages in noted]
    for each in several:
        each.sort(key=lambda item: orders[id(item[1].call)])
        later = said[orders[id(each[0][1].call)] + 1 :]
        chosen = choose([answer for _, answer in each], [*later, *notes])
        result.undecided += chosen.undecided
        if not chosen.undecided:
            result.unused += len(each) - len(chosen.kept)
        for place, (history, answer) in enumerate(each):
            if place not in chosen.kept and not answer.went_on:
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
