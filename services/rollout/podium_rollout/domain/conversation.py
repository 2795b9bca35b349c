"""The conversations of an episode, and the histories that each leaves behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from podium.core.contract import validate
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics
from podium_rollout.domain.record import RecordedTokens

MAIN = ""
_NAME = re.compile(r"[a-z0-9_-]{0,64}")


class History:
    """One linear conversation: its words and its tokens."""

    def __init__(self, conversation: str, episode: spec_pb2.EpisodeSpec) -> None:
        """`conversation`: the environment's name for the conversation that this records."""
        self.conversation = conversation
        self._episode = episode
        self.generate = inference_pb.GenerateRequest()
        """The next turn's request. It grows in place, so no turn copies a long history."""
        self.request = self.generate.render
        """Messages and tools; tokens of the first `prefix_messages` are in `record`."""
        self.request.SetInParent()
        self.request.tool_format = episode.tool_format
        self.request.chat_template_kwargs.CopyFrom(episode.chat_template_kwargs)
        self.record = RecordedTokens(self.generate.prompt_token_ids)
        self.calls = 0
        """The number of tool calls in its messages."""
        self.is_split = False
        """Whether it repeats the words of another, which the template writes otherwise now."""

    def said(self, message: pb.Message) -> None:
        """Takes the message whose tokens have just been recorded."""
        self.request.messages.append(message)
        self.request.prefix_messages = len(self.request.messages)
        self.calls += len(message.tool_calls)

    def again(self) -> History:
        """A copy of the messages and tools without tokens: these are rendered anew."""
        copy = History(self.conversation, self._episode)
        copy.request.messages.MergeFrom(self.request.messages)
        copy.request.tools.MergeFrom(self.request.tools)
        copy.calls = self.calls
        copy.is_split = True
        return copy


class Conversations:
    """What is said in an episode, by the environment's names of who talks with it.

    What an environment sends is not believed: ValueError says what is wrong with it.
    """

    def __init__(self, episode: spec_pb2.EpisodeSpec) -> None:
        """Starts with the main conversation alone, still empty."""
        self._episode = episode
        self._open: dict[str, list[str]] = {}
        """By conversation, ids of tool calls that still wait for a result, in order."""
        self._current: dict[str, History] = {}
        self.histories: list[History] = []
        """Every history, in the order in which they began."""
        self.speaking = MAIN
        """The conversation in which the next turn is said."""
        self._begin(MAIN)

    @property
    def history(self) -> History:
        """The history that the next turn is added to."""
        return self._current[self.speaking]

    def said(self, message: pb.Message) -> None:
        """Takes the turn of whoever speaks."""
        self.history.said(message)
        self._open[self.speaking] = [call.id for call in message.tool_calls]

    def split(self) -> History:
        """Begins a new history of the same messages, whose tokens are rendered anew."""
        metrics.HISTORY_SPLITS.inc()
        again = self.history.again()
        self._current[self.speaking] = again
        self.histories.append(again)
        return again

    def observe(
        self, messages: Sequence[pb.Message], tools: Sequence[pb.Tool], notice: str = ""
    ) -> None:
        """Takes what the environment says; its last message tells who speaks next.

        Args:
            tools: those on offer to the next speaker.
            notice: Podium's own words to who has just spoken.

        Raises:
            ValueError: a result of a call that nobody made or that has one, or an
                impossible name of a conversation, or a message or tool without what the
                contract demands.
        """
        spoke = self.speaking
        for run in _runs(messages):
            if run[0].role == pb.ROLE_TOOL:
                self._take_results(run)
            else:
                message = run[0]
                if notice and message.conversation == spoke and message.role == pb.ROLE_USER:
                    message = pb.Message()
                    message.CopyFrom(run[0])
                    message.content = f"{notice}\n{message.content}"
                    notice = ""
                self._take(message)
        if notice:
            self._take(pb.Message(role=pb.ROLE_USER, content=notice, conversation=spoke))
        self.speaking = messages[-1].conversation if messages else spoke
        self._offer(tools)

    def _offer(self, tools: Sequence[pb.Tool]) -> None:
        request = self.history.request
        if list(request.tools) == list(tools):
            return
        for tool in tools:
            _check(tool, "a tool")
        # Templates tell of tools at the start, and that is in the record.
        if len(self.history.record):
            request = self.split().request
        del request.tools[:]
        request.tools.extend(tools)

    def _take_results(self, results: Sequence[pb.Message]) -> None:
        """By id, sorted by call: most templates show results by their order alone."""
        name = results[0].conversation
        pending = self._open.get(name, [])
        ids = [result.tool_call_id for result in results]
        for position, call_id in enumerate(ids):
            if call_id not in pending or call_id in ids[:position]:
                allowed = ", ".join(map(repr, pending)) or "none"
                raise ValueError(
                    f"a tool result answers call {call_id!r}; calls without a result are {allowed}"
                )
        for result in sorted(results, key=lambda result: pending.index(result.tool_call_id)):
            self._take(result)
        self._open[name] = [call_id for call_id in pending if call_id not in ids]

    def _take(self, message: pb.Message) -> None:
        name = message.conversation
        if not _NAME.fullmatch(name) or name == "agent":
            raise ValueError(
                f"a message is of conversation {name!r}; allowed are small letters, digits, _ and"
                " -, 64 at most, but not 'agent'; the main conversation's name is empty"
            )
        _check(message, "a message")
        if name not in self._current or message.begins_history:
            self._begin(name)
        history = self._current[name]
        history.calls += len(message.tool_calls)
        kept = history.request.messages.add()
        kept.CopyFrom(message)
        kept.ClearField("conversation")
        kept.ClearField("begins_history")
        if message.role == pb.ROLE_ASSISTANT:
            self._open[name] = [call.id for call in message.tool_calls]

    def _begin(self, name: str) -> None:
        self._open[name] = []
        self._current[name] = History(name, self._episode)
        self.histories.append(self._current[name])


def _check(said: pb.Message | pb.Tool, what: str) -> None:
    """A served environment may be in any language; no other service would take its group."""
    if found := validate(said):
        raise ValueError(f"{what} breaks the contract: {found[0].field} {found[0].description}")


def _runs(messages: Iterable[pb.Message]) -> list[list[pb.Message]]:
    """Neighbouring tool results of one conversation together, all others alone."""
    found: list[list[pb.Message]] = []
    for message in messages:
        last = found[-1][-1] if found else None
        if (
            last is not None
            and last.role == message.role == pb.ROLE_TOOL
            and last.conversation == message.conversation
            and not message.begins_history
        ):
            found[-1].append(message)
        else:
            found.append([message])
    return found
