"""A model behind an OpenAI-compatible API, as an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from podium.core.errors import UnavailableError
from podium.environments import Agent, Message, Observation, Tool, ToolCall

_TIMEOUT_SECONDS = 120.0


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
    ) -> None:
        """`client` has the API's base URL and its key in the headers."""
        super().__init__(seed)
        self._client = client
        self._options = {"model": model, "temperature": temperature, "max_tokens": max_tokens}
        self._messages: list[dict[str, Any]] = []

    async def act(self, observation: Observation) -> Message:
        """The model's answer to the conversation so far.

        Raises:
            UnavailableError: the API cannot be reached, or refuses the request.
        """
        self._messages += [_to_api(message) for message in observation.messages]
        body: dict[str, Any] = {**self._options, "messages": self._messages, "seed": self.seed}
        if observation.tools:
            body["tools"] = _tools(observation.tools)
        try:
            response = await self._client.post(
                "chat/completions", json=body, timeout=_TIMEOUT_SECONDS
            )
            response.raise_for_status()
            answer = response.json()["choices"][0]["message"]
        except httpx.HTTPStatusError as error:
            text = error.response.text[:200]
            status = error.response.status_code
            raise UnavailableError(f"the model's API answered {status}: {text}") from error
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise UnavailableError(f"the model's API gave no answer: {error!r}") from error
        message = Message(
            "assistant",
            answer.get("content") or "",
            tool_calls=tuple(
                ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in answer.get("tool_calls") or ()
            ),
        )
        self._messages.append(_to_api(message))
        return message


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
