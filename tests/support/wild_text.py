"""What models, judges and APIs say at their worst, from a seed: texts, calls, bodies, numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from support.written_calls import WRITTEN

_PIECES = (
    *("\ud800", "\udfff", "\ud83d", "\ude00", "\ud83d\ude00", "\0", "\x1b[2J", "\x7f", "\x85"),
    *("\u2028", "\u202e", "\ufeff", "\ufffd", "\uffff", "é", "日本語", "a", "word ", "\n", "\r\n"),
    *(r"\ud800", r"\uDC00", r"\ud83d\ude00", r"\u0000", r"\\ud800", "\\", '"', "\\u", r"\x00"),
    *(
        "<think>",
        "</think>",
        "```json\n",
        "```",
        "</attempt-aaaa>",
        '<attempt id="1">',
        "<|im_end|>",
    ),
    *("{", "}", "[", "]", "{{", "[[[[", '{"scores": [', '"score": ', "NaN", "1e999", "-Infinity"),
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "call: look ", "<|python_tag|>"),
    *("<|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
)
_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 0.5, 1e308, -1e308, 5e-324, 2**31, 2**63, 2**64, 10**400, -(10**400)),
    *(float("inf"), float("-inf"), float("nan"), True, None),
)


class Wild:
    """A source of the worst; the same from the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choice(self, of: Any) -> Any:
        """One of them."""
        return self._random.choice(of)

    def chance(self, share: float) -> bool:
        """True for about that share of the questions."""
        return self._random.random() < share

    def text(self, most: int = 8) -> str:
        """Pieces in a row; one in fifty is long, or nested deep."""
        if self.chance(0.02):
            return self.choice(_PIECES) * self.choice((50, 2_000))  # type: ignore[no-any-return]
        return "".join(self._random.choices(_PIECES, k=self._random.randint(0, most)))

    def number(self) -> Any:
        """A number that some reader of it cannot take."""
        return self.choice(_NUMBERS)

    def value(self, depth: int = 4) -> Any:
        """What JSON, as Python reads and writes it, may hold."""
        if self.chance(0.01):
            nested: Any = self.text(2)
            for _ in range(self.choice((20, 29, 40, 200, 800))):
                nested = [nested] if self.chance(0.5) else {self.text(1): nested}
            return nested
        if depth == 0 or self.chance(0.5):
            return self.text() if self.chance(0.7) else self.number()
        if self.chance(0.5):
            return [self.value(depth - 1) for _ in range(self._random.randint(0, 3))]
        return self.object(depth)

    def object(self, depth: int = 4) -> dict[str, Any]:
        """A JSON object."""
        names = ("name", "text", "q", self.text(2))
        return {
            self.choice(names): self.value(depth - 1) for _ in range(self._random.randint(0, 3))
        }

    def json(self, value: Any) -> str:
        """As a model writes it: with escapes or without, and not always to its end."""
        text = json.dumps(value, ensure_ascii=self.chance(0.5))
        return text[: self._random.randint(0, len(text))] if self.chance(0.05) else text

    def reply(self, names: tuple[str, ...] = ("look",)) -> str:
        """What a policy says: words, and calls in any format."""
        if self.chance(0.3):
            return self.text()
        name = self.choice(names) if self.chance(0.7) else self.text(2) * self.choice((1, 1, 300))
        arguments = self.json(self.object())
        as_json = self.json({"name": name, "arguments": self.value()})
        written: tuple[Callable[[], str], ...] = (
            lambda: f"<tool_call>{as_json}</tool_call>",
            lambda: f"<tool_call>\n{as_json}\n</tool_call>{self.text()}",
            lambda: self.json({"name": name, "parameters": self.value()}),
            lambda: f"[TOOL_CALLS][{as_json}]",
            lambda: f"[TOOL_CALLS]{name}[ARGS]{arguments}",
            lambda: f"call: {name} {arguments}",
            lambda: (
                f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}"
                "<|tool_call_end|>"
            ),
            lambda: f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        )
        return f"{self.text(2)}{self.choice(written)()}"

    def call(self, call_format: str, name: str) -> str:
        """A call as models of one family write it, of arguments that are wild."""
        try:
            return WRITTEN[call_format]([(name, self.object())])
        except RecursionError:
            # Some are written by functions that call themselves, which a model is not.
            return self.reply()

    def written(self, call_format: str) -> str:
        """A call as models of one family write it, of a name and arguments that are wild."""
        name = "look" if self.chance(0.7) else self.text(2)
        reply = f"{self.text(1)}{self.call(call_format, name)}"
        return reply[: self._random.randint(0, len(reply))] if self.chance(0.1) else reply

    def message(self) -> dict[str, Any]:
        """Of chat completions, more or less."""
        call = {"id": self.text(2), "function": {"name": self.text(2), "arguments": self.value()}}
        made = {
            "role": self.choice(("user", "assistant", "tool", self.text(1))),
            "content": self.value(2),
            "name": self.text(1),
            "tool_call_id": self.value(1),
            "tool_calls": [call, self.value(1)] if self.chance(0.5) else self.value(1),
        }
        return {key: value for key, value in made.items() if self.chance(0.7)}

    def body(self) -> dict[str, Any]:
        """A request of chat completions, more or less."""
        function = {
            "name": self.text(2) or "f",
            "description": self.value(1),
            "parameters": self.object(),
        }
        return {
            "messages": [self.message() for _ in range(self._random.randint(0, 3))],
            "instructions": self.value(1),
            "input": self.value(2),
            "tools": [{"type": "function", "function": function}, self.value(2)],
        }

    def usage(self) -> Any:
        """What an API says that an answer took."""
        if self.chance(0.1):
            return self.value(1)
        return {
            "prompt_tokens": self.number(),
            "completion_tokens": self.number() if self.chance(0.8) else self.text(),
        }

    def verdict(self, labels: list[str], key: str = "attempt_id") -> str:
        """What a judge says of attempts, or criteria: right, nearly right, or anything at all."""
        entries = [
            {
                key: label if self.chance(0.98) else self.value(1),
                "explanation": self.text() if self.chance(0.9) else self.value(2),
                "score": 0.5 if self.chance(0.95) else self.value(1),
            }
            for label in labels
        ]
        text = self.json({"scores": entries} if self.chance(0.8) else entries)
        return text if self.chance(0.6) else f"{self.text()}{text}{self.text()}"

    def scores(self, count: int) -> str:
        """The body of a user's scorer's answer about so many attempts."""
        scores = [0.5 if self.chance(0.98) else self.value(1) for _ in range(count)]
        reasons = [self.text() if self.chance(0.98) else self.value(1) for _ in range(count)]
        answer: dict[str, Any] = {"scores": scores if self.chance(0.97) else self.value()}
        if self.chance(0.5):
            answer["reasons"] = reasons if self.chance(0.9) else self.value()
        if self.chance(0.05):
            answer["error"] = self.value()
        return self.json(answer if self.chance(0.97) else self.value())

    def reward(self) -> str:
        """The body of a reward model's answer about a conversation, by either protocol."""
        numbers = [0.5 if self.chance(0.95) else self.value(1) for _ in range(self.choice((1, 2)))]
        pooled = [numbers[:1]] * self.choice((1, 1, 3)) if self.chance(0.5) else numbers[0]
        result = {"data": pooled, "probs": numbers} if self.chance(0.97) else self.value()
        answer = {"data": [result] if self.chance(0.97) else self.value(), "usage": self.usage()}
        return self.json(answer if self.chance(0.97) else self.value())

    def completion(self, labels: list[str], key: str = "attempt_id") -> bytes:
        """The body of a judge API's answer; see `verdict`."""
        if self.chance(0.02):
            return self.text().encode(errors="surrogatepass")
        said: Any = self.verdict(labels, key)
        message = self.choice(
            (
                {"content": said},
                {"content": said, "reasoning_content": self.value(1)},
                {"content": [{"type": "text", "text": said}, self.value(1)]},
                {"content": None, "tool_calls": [{"function": {"arguments": said}}, self.value(1)]},
                {"content": self.value()},
                self.value(),
            )
        )
        choice = {"message": message, "finish_reason": self.choice(("stop", "length", self.text()))}
        return json.dumps({"choices": [choice], "usage": self.usage()}).encode()
