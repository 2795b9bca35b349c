"""Messages to token ids, with the model's own chat template, without re-rendering sampled turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.openai_messages import to_openai, tools_to_openai
from podium.core.outside import clean_json
from podium.core.text_tools import as_text
from podium.core.tool_formats import FORMATS, TEXT, Call
from podium.types.v1 import spec_pb2
from podium.types.v1 import trajectory_pb2 as pb

_SENTINEL = "\u2042podium-sampled-turn\u2042"
_ROLES = (pb.ROLE_SYSTEM, pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_TOOL)

# Nine letters and digits: Mistral's templates accept no other ids.
_PROBE = pb.ToolCall(id="probe0000", name="probe", arguments_json='{"x": 1}')

Message = Mapping[str, Any]


class Tokenizer(Protocol):
    """What is needed of a Transformers tokenizer."""

    eos_token: str
    eos_token_id: int

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Renders messages."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to ids."""
        ...


@dataclass(frozen=True)
class _World:
    """What a template is told besides the messages."""

    tools: list[Any]
    arguments: Mapping[str, Any]


class Renderer:
    """Renders whole conversations, and only what follows a sampled turn."""

    def __init__(
        self, tokenizer: Tokenizer, call_format: str = "", chat_template: str = ""
    ) -> None:
        """The tokenizer must have a chat template, unless one is given.

        Args:
            call_format: how the model writes calls, one of `tool_formats.FORMATS`;
                empty for what the template shows.
            chat_template: a template in place of the tokenizer's own.
        """
        self._tokenizer = tokenizer
        self._template = {"chat_template": chat_template} if chat_template else {}
        shown = self._shown_format()
        self.call_format = call_format or shown
        """`text` for a model whose template has no tools, or writes calls as no format does."""

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
        if call_format == TEXT:
            messages, _ = as_text(messages, tools)
            tools = ()
        world = _World(tools_to_openai(tools), arguments or {})
        text = self._text(self._plain(messages), world, prompt=True)
        return self._tokenizer.encode(text, add_special_tokens=False)

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
        called = bool(messages[covered - 1].tool_calls)
        if call_format == TEXT:
            messages, covered = as_text(messages, tools, covered)
            tools = ()
        world = _World(tools_to_openai(tools), arguments or {})
        suffix = self._suffix(self._plain(messages), world, covered, called)
        if suffix is None:
            raise FailedPreconditionError(
                "the chat template writes earlier turns differently now",
                reason="HISTORY_NOT_CONTINUABLE",
            )
        eos = self._tokenizer.eos_token
        if prefix_ids[-1] == self._tokenizer.eos_token_id:
            suffix = suffix.removeprefix(eos)
        return list(prefix_ids) + self._tokenizer.encode(suffix, add_special_tokens=False)

    def _suffix(
        self, plain: list[Message], world: _World, covered: int, called: bool
    ) -> str | None:
        """What the template writes after the words of `plain[covered - 1]`, if it keeps them."""
        before = self._text(plain[: covered - 1], world, prompt=True)
        marked = list(plain)
        marked[covered - 1] = {"role": "assistant", "content": _SENTINEL}
        if plain[covered - 1].get("tool_calls"):
            # What follows calls may be written otherwise than what follows words.
            turn = self._text(plain[:covered], world, prompt=False)
            end = self._text(marked[:covered], world, prompt=False).partition(_SENTINEL)[2]
            whole = self._text(plain, world, prompt=True)
            if turn.startswith(before) and turn.endswith(end) and whole.startswith(turn):
                return end + whole[len(turn) :]
        head, mark, suffix = self._text(marked, world, prompt=True).partition(_SENTINEL)
        keeps = called or self._keeps(plain, world, covered, before)
        return suffix if mark and head == before and keeps else None

    def _shown_format(self) -> str:
        """The format whose parser reads back the call that the template itself writes."""
        for self._arguments_as_text in (False, True):
            try:
                written = self._written_probe()
            except InvalidArgumentError:
                continue
            for name, read in FORMATS.items():
                if name != TEXT and _is_probe(read(written).calls):
                    return name
        self._arguments_as_text = False
        return TEXT

    def _written_probe(self) -> str:
        """A turn of one call as the template writes it; empty when it does not show the tool."""
        asked = pb.Message(role=pb.ROLE_USER, content="?")
        turn = pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[_PROBE])
        world = _World(tools_to_openai([pb.Tool(name=_PROBE.name, description="A probe.")]), {})
        plain = self._plain([asked, turn])
        before = self._text(plain[:1], world, prompt=True)
        if _PROBE.name not in before:
            return ""
        written = self._text(plain, world, prompt=False).removeprefix(before).strip()
        for token in (self._tokenizer.eos_token, "<|eot_id|>", "<|eom_id|>"):
            written = written.removesuffix(token).strip()
        return written

    def _plain(self, messages: Sequence[pb.Message]) -> list[Message]:
        return _plain(messages, arguments_as_text=self._arguments_as_text)

    def _keeps(self, plain: Sequence[Message], world: _World, covered: int, before: str) -> bool:
        """Whether the sampled turn's own text stays as it is, e.g. with its thinking."""
        sampled = plain[covered - 1]
        whole = self._text(plain, world, prompt=True)
        return whole[len(before) :].lstrip().startswith(sampled["content"].strip())

    def _text(self, messages: Sequence[Message], world: _World, *, prompt: bool) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=world.tools or None,
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


def _plain(messages: Sequence[pb.Message], *, arguments_as_text: bool) -> list[Message]:
    # Most templates take them apart, DeepSeek's want them as they were written.
    arguments = str if arguments_as_text else _arguments
    result: list[Message] = []
    for index, message in enumerate(messages):
        if message.role not in _ROLES:
            raise InvalidArgumentError(
                violations=[Violation(f"messages[{index}].role", "is not a role")]
            )
        plain = to_openai(message)
        for call in plain.get("tool_calls", ()):
            call["function"]["arguments"] = arguments(call["function"]["arguments"])
        result.append(plain)
    return result


def _is_probe(calls: Sequence[Call]) -> bool:
    if [call.name for call in calls] != [_PROBE.name]:
        return False
    return bool(_arguments(calls[0].arguments_json) == _arguments(_PROBE.arguments_json))


def _arguments(text: str) -> Any:
    # Templates iterate over arguments, but what a model wrote need not be JSON.
    try:
        return json.loads(clean_json(text))
    except (ValueError, RecursionError):
        return text
