"""Captured calls put together into histories of exact tokens."""

from __future__ import annotations

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
        before = _continued(open_, call.prompt_token_ids)
        if before is None:
            before = _Open(request_id=call.generation.request_id)
            open_.append(before)
        before.add(call)
    seen: set[str] = set()
    for history in open_:
        if history.calls == 1 and history.request_id in seen:
            continue
        seen.add(history.request_id)
        result.histories.append(history.message())
    return result


@dataclass
class _Open:
    """A history that may go on."""

    request_id: str
    """Of the call that began it."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[pb.SampledSpan] = field(default_factory=list)
    last: inference_pb.CapturedCall = field(default_factory=inference_pb.CapturedCall)
    calls: int = 0

    def add(self, call: inference_pb.CapturedCall) -> None:
        """Goes on with a call, whose prompt begins with all that there is."""
        generation = call.generation
        self.token_ids = list(call.prompt_token_ids)
        if generation.token_ids and not call.untrainable:
            self.spans.append(
                pb.SampledSpan(
                    start=len(self.token_ids),
                    length=len(generation.token_ids),
                    policy=generation.policy,
                    weights_version=generation.weights_version,
                    temperature=call.temperature,
                    finish_reason=generation.finish_reason,
                    request_id=generation.request_id,
                )
            )
            self.logprobs += generation.logprobs
        self.token_ids += generation.token_ids
        self.last = call
        self.calls += 1

    def message(self) -> pb.History:
        """The history as the contract has it."""
        return pb.History(
            messages=[*self.last.messages, self.last.reply],
            tools=self.last.tools,
            tokens=pb.TokenRecord(
                token_ids=self.token_ids, logprobs=self.logprobs, spans=self.spans
            ),
        )


def _continued(histories: Sequence[_Open], prompt: Sequence[int]) -> _Open | None:
    """The longest history that a prompt begins with, whole."""
    whole = list(prompt)
    fitting = [
        history
        for history in histories
        if len(history.token_ids) < len(whole)
        and whole[: len(history.token_ids)] == history.token_ids
    ]
    return max(fitting, key=lambda history: len(history.token_ids), default=None)
