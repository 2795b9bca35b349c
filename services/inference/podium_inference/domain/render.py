"""Messages to token ids, with the model's own chat template, without re-rendering sampled turns."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.reasoning_formats import thinks
from podium.core.text_tools import as_text
from podium.core.tool_calls import reply_format
from podium.core.tool_formats import FORMATS, TEXT, Call, Types
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_inference.domain import metrics
from podium_inference.domain.continuation import Continuation, Message
from podium_inference.domain.habits import Habits, tried_conversations
from podium_inference.domain.plain import as_templates_take, taken_apart
from podium_inference.domain.ports import Tokenizer
from podium_inference.domain.recent import Recent, recent
from podium_inference.domain.world import TemplateWorld

_MOST_WORLDS = 256
"""Whose habits are kept; callers choose what templates are told."""

# Nine letters and digits: Mistral's templates accept no other ids.
_PROBE = pb.ToolCall(id="probe0000", name="probe", arguments_json='{"x": 1}')
_SEEN = "probed"
NO_TEMPLATE = (
    "the model has no chat template, as base models have none;"
    " PODIUM_INFERENCE_CHAT_TEMPLATE names one (pools[].chatTemplate in the chart), and a"
    " chat_template.jinja in its folder is one"
)
_REFUSED = "\u2042podium-refused\u2042"


class Renderer:
    """Renders whole conversations, and only what follows a sampled turn."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        call_format: str = "",
        chat_template: str = "",
        reasoning_parser: str = "",
        *,
        always_whole: bool = False,
    ) -> None:
        """The tokenizer must have a chat template, unless one is given.

        Args:
            call_format: how the model writes calls, one of `tool_formats.FORMATS`;
                empty for what the template shows.
            chat_template: a template in place of the tokenizer's own.
            reasoning_parser: how the model writes thoughts, one of
                `reasoning_formats.PARSERS`; empty for not at all.
            always_whole: renders whole conversations each turn, to compare with.
        """
        self._tokenizer = tokenizer
        self._template = {"chat_template": chat_template} if chat_template else {}
        self._parser = reasoning_parser
        self._always_whole = always_whole
        self._habits: dict[str, Habits] = {}
        # Conversations are rendered by several threads.
        self._keeping = threading.Lock()
        self.shows_tools = True
        """Whether the template tells the model of its tools, in any words."""
        shown = self._shown_format()
        self.call_format = call_format or shown
        """`text` for a model whose template has no tools, or writes calls as no format does."""

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template, without which no messages can be rendered."""
        return bool(self._template or self._tokenizer.chat_template)

    def format_of(self, tools: Sequence[pb.Tool], wanted: spec_pb2.ToolFormat.ValueType) -> str:
        """How the reply to a conversation with these tools writes calls; empty without tools.

        Raises:
            FailedPreconditionError: NO_TOOL_TEMPLATE: the template has no tools.
        """
        if not tools:
            return ""
        if wanted == spec_pb2.TOOL_FORMAT_NATIVE and self.call_format == TEXT:
            raise FailedPreconditionError(
                "the model's chat template has no tools, or writes calls in no format known here;"
                " tool_format must be auto or text",
                reason="NO_TOOL_TEMPLATE",
            )
        return TEXT if wanted == spec_pb2.TOOL_FORMAT_TEXT else self.call_format

    def reply_format(self, call_format: str, arguments: Mapping[str, Any]) -> str:
        """How the reply of a conversation is to be read, with these template arguments."""
        parser = self._parser if thinks(self._parser, arguments) else ""
        return reply_format(parser, call_format)

    def first(
        self,
        messages: Sequence[pb.Message],
        tools: Sequence[pb.Tool],
        call_format: str,
        arguments: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The prompt of a conversation's next assistant turn; see `format_of`.

        Args:
            arguments: what else the template is told; see `template_arguments`.

        Raises:
            InvalidArgumentError: the template refuses the messages.
        """
        world = TemplateWorld(tools, call_format, arguments or {})
        plain, _ = self._prepared(messages, 0, world)
        metrics.RENDERS.labels("first").inc()
        text = self._text(plain, world=world, prompt=True)
        return self._tokenizer.encode(text, add_special_tokens=False)

    def finished(
        self,
        messages: Sequence[pb.Message],
        tools: Sequence[pb.Tool],
        call_format: str,
        arguments: Mapping[str, Any],
    ) -> tuple[str, str]:
        """The prompt of a conversation's last message, and the conversation with it.

        Raises:
            InvalidArgumentError: the template refuses the messages.
        """
        world = TemplateWorld(tools, call_format, arguments)
        metrics.RENDERS.labels("demonstration").inc()
        before, _ = self._prepared(messages[:-1], 0, world)
        whole, _ = self._prepared(messages, 0, world)
        return (
            self._text(before, world=world, prompt=True),
            self._text(whole, world=world, prompt=False),
        )

    def encode(self, text: str) -> list[int]:
        """Text as a template writes it to ids."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    @property
    def end(self) -> str:
        """The token at which the engine stops; empty of a tokenizer that names none."""
        return self._tokenizer.eos_token or ""

    def until_end(self, said: str) -> str | None:
        """A finished turn up to the tokens that end it; None when none does.

        What follows these is the template's, and never sampled: ChatML's line break, or the end
        of the whole text that Phi's writes.
        """
        found = self._ends.search(said)
        return None if found is None else said[: found.end(1)]

    @cached_property
    def _ends(self) -> re.Pattern[str]:
        added = self._tokenizer.added_tokens_decoder.values()
        special = {self.end, *(each.content for each in added if each.special)} - {""}
        if not special:
            return re.compile(r"(?!)")
        one = "|".join(re.escape(each) for each in sorted(special, key=len, reverse=True))
        return re.compile(rf"((?:{one})+)(?:\s+(?:{one})*)*\Z")

    def following(
        self,
        messages: Sequence[pb.Message],
        tools: Sequence[pb.Tool],
        prefix_ids: Sequence[int],
        covered: int,
        call_format: str,
        arguments: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """`prefix_ids`, and the ids of only what follows the sampled turn `messages[covered - 1]`.

        Raises:
            InvalidArgumentError: `covered` does not end at an assistant's
                message, or the template refuses the messages.
            FailedPreconditionError: HISTORY_NOT_CONTINUABLE: the template
                writes earlier turns differently now.
        """
        if not 1 <= covered <= len(messages) or messages[covered - 1].role != pb.ROLE_ASSISTANT:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        "prefix_messages",
                        f"got {covered} of {len(messages)} messages; the last of them must be "
                        "the sampled assistant message",
                    )
                ]
            )
        world = TemplateWorld(tools, call_format, arguments or {})
        suffix = self._following(messages, covered, world)
        if suffix is None:
            raise FailedPreconditionError(
                "the chat template writes earlier turns differently now",
                reason="HISTORY_NOT_CONTINUABLE",
            )
        # What ended the turn is in the record: the end, or a sign such as that of a call's end.
        suffix = suffix.removeprefix(self._sign(prefix_ids[-1]))
        return list(prefix_ids) + self._tokenizer.encode(suffix, add_special_tokens=False)

    def _sign(self, token: int) -> str:
        """The token as templates write it, if it ends turns."""
        if token == self._tokenizer.eos_token_id:
            return self.end
        added = self._tokenizer.added_tokens_decoder.get(token)
        return "" if added is None else str(added.content)

    def _following(
        self, messages: Sequence[pb.Message], covered: int, world: TemplateWorld
    ) -> str | None:
        """What follows the sampled turn, of the conversation's end where that is enough."""
        habits = self._habits_of(world)
        as_words = world.call_format == TEXT
        short = recent(messages, covered, results_ask=as_words) if habits.local else None
        if short is None:
            metrics.RENDERS.labels("whole").inc()
            return self._suffix(messages, covered, world, habits)
        using = habits.stand_in or world
        found = self._of_recent(short, using, habits)
        if found is not _REFUSED and not short.due:
            metrics.RENDERS.labels("recent").inc()
            return found
        metrics.RENDERS.labels("whole").inc()
        # Whose error, if it is refused as well, names the message.
        whole = self._suffix(messages, covered, world, habits)
        if found != whole:
            metrics.RENDER_MISMATCHES.inc()
            habits.local = using is not world and self._of_recent(short, world, habits) == whole
            habits.stand_in = None
        return whole

    def _of_recent(self, short: Recent, world: TemplateWorld, habits: Habits) -> str | None:
        """What follows the sampled turn of the recent messages; `_REFUSED` when they are."""
        try:
            return self._suffix(short.messages, short.covered, world, habits)
        except InvalidArgumentError:
            return _REFUSED

    def _suffix(
        self, messages: Sequence[pb.Message], covered: int, world: TemplateWorld, habits: Habits
    ) -> str | None:
        return self._continuation(messages, covered, world).suffix(
            calls_apart=habits.calls_apart, results_need_calls=habits.results_need_calls
        )

    def _continuation(
        self, messages: Sequence[pb.Message], covered: int, world: TemplateWorld
    ) -> Continuation:
        called = bool(messages[covered - 1].tool_calls)
        plain, covered = self._prepared(messages, covered, world)
        return Continuation(
            partial(self._text, world=world),
            plain,
            covered,
            called=called,
            call_format=world.call_format,
        )

    def _prepared(
        self, messages: Sequence[pb.Message], covered: int, world: TemplateWorld
    ) -> tuple[list[Message], int]:
        """As the template takes them, and how many of those stand for the first `covered`."""
        if world.call_format == TEXT:
            messages, covered = as_text(messages, world.described, covered)
        return as_templates_take(messages, arguments_as_text=self._arguments_as_text), covered

    def _habits_of(self, world: TemplateWorld) -> Habits:
        if (known := self._habits.get(world.key)) is not None:
            return known
        habits = Habits()
        if world.tools and world.call_format != TEXT:
            self._try_calls(world, habits)
        tried = tried_conversations(bool(world.tools))
        habits.local = not self._always_whole and all(
            self._is_local(messages, world, world, habits) for messages in tried
        )
        if habits.local and world.tools:
            stand_in = world.with_stand_in()
            if all(self._is_local(messages, world, stand_in, habits) for messages in tried):
                habits.stand_in = stand_in
        with self._keeping:
            while len(self._habits) >= _MOST_WORLDS:
                del self._habits[next(iter(self._habits))]
            self._habits[world.key] = habits
        return habits

    def _try_calls(self, world: TemplateWorld, habits: Habits) -> None:
        asked = pb.Message(role=pb.ROLE_USER, content="?")
        turn = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[_PROBE])
        result = pb.Message(
            role=pb.ROLE_TOOL, content=_SEEN, tool_call_id=_PROBE.id, name=_PROBE.name
        )
        tried = self._continuation([asked, turn, result], 2, world)
        try:
            calls, words = tried.after_calls(), tried.after_words()
            habits.calls_apart = calls is not None and calls != words
            habits.results_need_calls = words is not None and _SEEN not in words
        except InvalidArgumentError:
            habits.calls_apart = True

    def _is_local(
        self,
        messages: Sequence[pb.Message],
        world: TemplateWorld,
        using: TemplateWorld,
        habits: Habits,
    ) -> bool:
        """Whether every turn's continuation is that of the whole, the short one told `using`."""
        as_words = world.call_format == TEXT
        turns = [n for n, message in enumerate(messages, 1) if message.role == pb.ROLE_ASSISTANT]
        ends = [*(turn - 1 for turn in turns[1:]), len(messages)]
        for covered, end in zip(turns, ends, strict=True):
            so_far = messages[:end]
            short = recent(so_far, covered, results_ask=as_words)
            if short is None:
                continue
            try:
                whole = self._suffix(so_far, covered, world, habits)
            except InvalidArgumentError:
                # What the template refuses tells nothing, and without need nothing is supposed.
                return using is world
            try:
                if self._suffix(short.messages, short.covered, using, habits) != whole:
                    return False
            except InvalidArgumentError:
                return False
        return True

    def _shown_format(self) -> str:
        """The format whose parser reads back the call that the template itself writes."""
        for self._arguments_as_text in (False, True):
            try:
                written = self._written_probe()
            except InvalidArgumentError:
                continue
            for name, read in FORMATS.items():
                if name != TEXT and _is_probe(read(written, Types()).calls):
                    return name
        self._arguments_as_text = False
        return TEXT

    def _written_probe(self) -> str:
        """A turn of one call as the template writes it; empty when it does not show the tool."""
        asked = pb.Message(role=pb.ROLE_USER, content="?")
        turn = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[_PROBE])
        world = TemplateWorld([pb.Tool(name=_PROBE.name, description="A probe.")], "", {})
        plain, _ = self._prepared([asked, turn], 0, world)
        before = self._text(plain[:1], world=world, prompt=True)
        self.shows_tools = _PROBE.name in before
        if not self.shows_tools:
            return ""
        whole = self._text(plain, world=world, prompt=False)
        if not whole.startswith(before):
            # Some write more in a prompt than there is before a turn, such as thoughts' beginning.
            before = self._text(plain[:1], world=world, prompt=False)
        written = whole.removeprefix(before).strip()
        for token in (self.end, "<|eot_id|>", "<|eom_id|>"):
            written = written.removesuffix(token).strip()
        return written

    def _text(self, messages: Sequence[Message], *, world: TemplateWorld, prompt: bool) -> str:
        if not self.has_template:
            raise InvalidArgumentError(violations=[Violation("messages", NO_TEMPLATE)])
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=world.plain_tools,
                    add_generation_prompt=prompt,
                    tokenize=False,
                    **self._template,
                    **world.arguments,
                )
            )
        except Exception as error:
            raise InvalidArgumentError(
                violations=[Violation("messages", f"the chat template refuses them: {error}")]
            ) from error


def _is_probe(calls: Sequence[Call]) -> bool:
    if [call.name for call in calls] != [_PROBE.name]:
        return False
    return bool(taken_apart(calls[0].arguments_json) == taken_apart(_PROBE.arguments_json))
