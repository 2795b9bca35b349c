"""Mutations of what the wild sources say: spliced, cut, overlong, too deep, full of signs."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

from podium.core.reasoning_formats import PARSERS
from podium.core.tool_formats import FORMATS
from support.wild_text import Wild

CALL_FORMATS = tuple(FORMATS)
REASONING = ("", *PARSERS)
_ENDS_OF_THOUGHTS = {
    **dict.fromkeys(("", "openai_gptoss"), ""),
    "mistral": "[/THINK]",
    "seed_oss": "</seed:think>",
}
_SIGNS = (
    *("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<s>", "</s>", "[INST]", "[/INST]", "<bos>"),
    *("<|start|>assistant<|channel|>analysis<|message|>", "<|call|>", "<|return|>", "[THINK]"),
    *("{{ 7 * 7 }}", "{% for x in y %}", "<seed:think>", "<tool_response>", "</tool_response>"),
    *(
        "<｜User｜>",
        "<｜Assistant｜>",
        "<|tool_calls_section_end|>",
        "<end_of_turn>",
        "[/TOOL_CALLS]",
    ),
)
_HUGE = ("1" * 400, "1" * 5_000, "-1e400", "1e-400", "NaN", "Infinity", "0x10", "1_000", "٣")
_MUTATED = 0.35


class Wilder(Wild):
    """As `Wild`, and worse: a third of what it says is changed once more."""

    def reply_in(self, call_format: str, reasoning: str) -> str:
        """What a policy says that was taught both formats: half the time it calls."""
        text = super().reply()
        if self.chance(0.5):
            calls = [self.call(call_format, "look") for _ in range(self.choice((1, 1, 1, 2, 5)))]
            text = self.choice(("", "", text)) + "\n".join(calls)
        while self.chance(_MUTATED):
            text = self._mutated(text, super().reply())
        # Without the sign many parsers read all of it as thoughts, in which nothing is called.
        ends = _ENDS_OF_THOUGHTS.get(reasoning, "</think>")
        return ends + text if self.chance(0.5) else text

    def verdict(self, labels: list[str], key: str = "attempt_id") -> str:
        """What a judge says of attempts, or criteria."""
        return self._worse(lambda: super(Wilder, self).verdict(labels, key))

    def scores(self, count: int) -> str:
        """What a user's scorer says of attempts."""
        return self._worse(lambda: super(Wilder, self).scores(count))

    def reward(self) -> str:
        """What a reward model says of a conversation."""
        return self._worse(super().reward)

    def _worse(self, say: Callable[[], str]) -> str:
        text = say()
        return self._mutated(text, say()) if self.chance(_MUTATED / 2) else text

    def _mutated(self, text: str, other: str) -> str:
        at, to = sorted(self._random.choices(range(len(text) + 1), k=2))
        ways = (
            lambda: text[:at] + other[len(other) // 2 :],
            lambda: text[:at] + text[to:],
            lambda: text[:to] + text[at:],
            lambda: text[:at] + other + text[at:],
            lambda: text[:at] + self.choice(_SIGNS) + text[at:],
            lambda: text[:at] + self.choice(_HUGE) + text[at:],
            lambda: text[:at] + self._deep() + text[to:],
            lambda: text.replace('"', self.choice(("'", "“", '\\"', "")), self.choice((1, -1))),
            lambda: text[:at] + self.choice(("x", "é", "\u2028", "[", "\\")) * self._long(),
            lambda: json.dumps(text),
        )
        return str(self.choice(ways)())

    def _deep(self) -> str:
        depth = self.choice((3, 30, 300, 3_000))
        opening, closing = self.choice((("[", "]"), ('{"a":', "}"), ("<think>", "</think>")))
        return opening * depth + (closing * depth if self.chance(0.5) else "")

    def _long(self) -> int:
        return self.choice((10, 1_000, 1_000, 20_000)) if self.chance(0.2) else 10  # type: ignore[no-any-return]


def of(seed: int, *about: object) -> Wilder:
    """A source of its own for each thing that is said, whatever is said meanwhile elsewhere."""
    return Wilder(seed << 32 | zlib.crc32("/".join(map(str, about)).encode(errors="replace")))
