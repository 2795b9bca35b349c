"""What plays where no model does: guesses, and what models really write now and then."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from podium.environments.agent import Agent
from podium.environments.types import Message, Observation, ToolCall

ODD = ("", "   ", "I do not know.", "🙂 \x00", "-1", '{"a": [', "word " * 400, "42", "<think>")
"""Replies that each environment is given in its first turns, one an episode."""


class Guesser(Agent):
    """Says words that it was shown, or calls the tools on offer with arguments of their schema."""

    def __init__(self, seed: int = 0, first: str | None = None) -> None:
        """`first` is what it says in the first turn, whatever it is asked."""
        super().__init__(seed)
        self._random = random.Random(seed)
        self._first = first
        self._calls = 0

    async def act(self, observation: Observation) -> Message:
        if self._first is not None:
            said, self._first = self._first, None
            return Message("assistant", said)
        if observation.tools and self._random.random() < 0.8:
            tool = self._random.choice(list(observation.tools))
            self._calls += 1
            arguments = self._arguments(tool.parameters)
            call = ToolCall(f"call-{self._calls}", tool.name, json.dumps(arguments))
            return Message("assistant", tool_calls=(call,))
        text = " ".join(message.content for message in observation.messages)
        words = re.findall(r"\w+", text)[-200:] or ["yes"]
        number = str(self._random.randrange(10))
        said = number if self._random.random() < 0.2 else self._random.choice(words)
        return Message("assistant", said)

    def _arguments(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return {}
        return {name: self._value(kind) for name, kind in properties.items()}

    def _value(self, schema: Any) -> Any:
        if not isinstance(schema, Mapping):
            return None
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return self._random.choice(schema["enum"])
        match schema.get("type"):
            case "integer":
                return self._random.randrange(10)
            case "number":
                return self._random.random()
            case "boolean":
                return self._random.random() < 0.5
            case "array":
                return [self._value(schema.get("items", {}))]
            case "object":
                return self._arguments(schema)
            case _:
                return self._random.choice(["a", "test", "2024", "*"])
