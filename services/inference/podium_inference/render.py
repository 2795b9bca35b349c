"""Messages to token ids, with the model's own chat template, without re-rendering sampled turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from google.protobuf import json_format
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.types.v1 import trajectory_pb2 as pb

_SENTINEL = "\u2042podium-sampled-turn\u2042"
_ROLES = {
    pb.ROLE_SYSTEM: "system",
    pb.ROLE_USER: "user",
    pb.ROLE_ASSISTANT: "assistant",
    pb.ROLE_TOOL: "tool",
}

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


class Renderer:
    """Renders whole conversations, and only what follows a sampled turn."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """The tokenizer must have a chat template."""
        self._tokenizer = tokenizer

    def first(self, messages: Sequence[pb.Message], tools: Sequence[pb.Tool]) -> list[int]:
        """The prompt of a conversation's next assistant turn.

        Raises:
            InvalidArgumentError: the template refuses the messages.
        """
        text = self._text(_plain(messages), _plain_tools(tools), prompt=True)
        return self._tokenizer.encode(text, add_special_tokens=False)

    def following(
        self,
        messages: Sequence[pb.Message],
        tools: Sequence[pb.Tool],
        prefix_ids: Sequence[int],
        covered: int,
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
        plain, plain_tools = _plain(messages), _plain_tools(tools)
        before = self._text(plain[: covered - 1], plain_tools, prompt=True)
        marked = list(plain)
        marked[covered - 1] = {"role": "assistant", "content": _SENTINEL}
        head, mark, suffix = self._text(marked, plain_tools, prompt=True).partition(_SENTINEL)
        if not mark or head != before or not self._keeps(plain, plain_tools, covered, before):
            raise FailedPreconditionError(
                "the chat template writes earlier turns differently now",
                reason="HISTORY_NOT_CONTINUABLE",
            )
        eos = self._tokenizer.eos_token
        if prefix_ids[-1] == self._tokenizer.eos_token_id:
            suffix = suffix.removeprefix(eos)
        return list(prefix_ids) + self._tokenizer.encode(suffix, add_special_tokens=False)

    def _keeps(
        self, plain: Sequence[Message], tools: list[Any] | None, covered: int, before: str
    ) -> bool:
        """Whether the sampled turn's own text stays as it is, e.g. with its thinking."""
        sampled = plain[covered - 1]
        if sampled.get("tool_calls"):
            return True
        whole = self._text(plain, tools, prompt=True)
        return whole[len(before) :].lstrip().startswith(sampled["content"].strip())

    def _text(self, messages: Sequence[Message], tools: list[Any] | None, *, prompt: bool) -> str:
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages), tools=tools, add_generation_prompt=prompt, tokenize=False
                )
            )
        except Exception as error:
            raise InvalidArgumentError(
                violations=[Violation("messages", f"the chat template refuses them: {error}")]
            ) from error


def _plain(messages: Sequence[pb.Message]) -> list[Message]:
    result: list[Message] = []
    for index, message in enumerate(messages):
        if message.role not in _ROLES:
            raise InvalidArgumentError(
                violations=[Violation(f"messages[{index}].role", "is not a role")]
            )
        plain: dict[str, Any] = {"role": _ROLES[message.role], "content": message.content}
        if message.tool_calls:
            plain["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": _arguments(call.arguments_json)},
                }
                for call in message.tool_calls
            ]
        if message.tool_call_id:
            plain["tool_call_id"] = message.tool_call_id
        if message.name:
            plain["name"] = message.name
        result.append(plain)
    return result


def _arguments(text: str) -> Any:
    # Templates iterate over arguments, but what a model wrote need not be JSON.
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain_tools(tools: Sequence[pb.Tool]) -> list[Any] | None:
    if not tools:
        return None
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json_format.MessageToDict(tool.parameters),
            },
        }
        for tool in tools
    ]
