"""A model behind an OpenAI-compatible API, as an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from podium.environments import Agent, Message, Observation, Tool, ToolCall
from podium.sdk.evaluation.retries import NotAnsweredError, RefusedError, Retries

_TOO_LONG = ("context length", "context_length", "maximum context", "context window", "too long")


class TooLongError(Exception):
    """The conversation does not fit the model's context any more."""


class ChatModel(Agent):
    """Any model that answers `POST /chat/completions`: a paid one, or a pool of Podium."""

    def __init__(
        self,
        seed: int,
        client: httpx.AsyncClient,
        model: str,
        *,
        temperature: float = 1.0,
        max_tokens: int = 128,
        retries: Retries = Retries(),  # noqa: B008 - immutable
    ) -> None:
        """`client` has the API's base URL and its key in the headers."""
        super().__init__(seed)
        self._retries = retries
        self._client = client
        self._options = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._messages: list[dict[str, Any]] = []

    async def act(self, observation: Observation) -> Message:
        """The model's answer to the conversation so far.

        Raises:
            TooLongError: it does not fit the model's context.
            NotAnsweredError: the API has no answer in all the retries, refuses the request for
                another reason, or answers with what is no chat completion.
        """
        self._messages += [_to_api(message) for message in observation.messages]
        body: dict[str, Any] = {**self._options, "messages": self._messages, "seed": self.seed}
        if observation.tools:
            body["tools"] = _tools(observation.tools)
        try:
            response = await self._retries.post(self._client, "chat/completions", body)
        except RefusedError as error:
            if error.status == 413 or any(words in error.text.lower() for words in _TOO_LONG):
                raise TooLongError(str(error)) from error
            raise NotAnsweredError(str(error)) from error
        try:
            message = _message(response.json()["choices"][0]["message"])
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise NotAnsweredError(f"the model's API gave no answer: {error!r}") from error
        self._messages.append(_to_api(message))
        return message


def _message(answer: Mapping[str, Any]) -> Message:
    return Message(
        "assistant",
        answer.get("content") or "",
        tool_calls=tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in answer.get("tool_calls") or ()
        ),
    )


def _to_api(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_json},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    return plain


def _tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]
