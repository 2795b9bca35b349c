"""What a chat template writes after a sampled turn, and whether it keeps that turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from podium.core.errors import InvalidArgumentError
from podium.core.reasoning_formats import OPENINGS
from podium.core.tool_formats import FORMATS, Types

_WORDS = "\u2042podium-sampled-turn\u2042"
_THOUGHTS = "\u2042podium-sampled-thoughts\u2042"
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")
"""What templates call an assistant's thoughts."""
_END_OF_THOUGHTS = "</think>"
_SIGN = re.compile(r"\s*<[^<>\s]+>")
_SIGNS = re.compile(r"(?:\s*<[^<>\s]+>)+\s*\Z")

Message = Mapping[str, Any]
"""As templates take it."""


class Text(Protocol):
    """A template with all that it is told besides the messages."""

    def __call__(self, messages: Sequence[Message], *, prompt: bool) -> str:
        """The conversation; with `prompt` up to where the assistant's next turn begins.

        Raises:
            InvalidArgumentError: the template refuses the messages.
        """
        ...


def end_of_calls(written: str, call_format: str) -> str | None:
    """What a template writes after the calls of a turn that it does not end as it ends words.

    Gemma 4's begins the results there. None when the turn does not end with signs at all.
    """
    if call_format not in FORMATS:
        return None
    read, types = FORMATS[call_format], Types()
    whole = read(written, types)
    signs = _SIGNS.search(written)
    if signs is None or not whole.calls:
        return None
    found: tuple[int, int] | None = None
    for sign in (*_SIGN.finditer(signs[0]), None):
        place = len(written) if sign is None else signs.start() + sign.start()
        so_far = read(written[:place], types)
        if so_far.calls != whole.calls:
            continue
        # Of those that leave the fewest words over the longest has the calls' closing sign.
        if found is None or len(so_far.content) <= found[0]:
            found = len(so_far.content), place
    return None if found is None else written[found[1] :]


class Continuation:
    """Of the sampled turn `plain[covered - 1]`.

    Templates are asked and never read: the turn is replaced by signs, and what stands around
    them in the whole conversation is what the template makes of the turn.
    """

    def __init__(
        self,
        text: Text,
        plain: Sequence[Message],
        covered: int,
        *,
        called: bool,
        call_format: str = "",
    ) -> None:
        """`called`: the turn has calls, which may be a part of its words."""
        self._text = text
        self._plain = plain
        self._covered = covered
        self._called = called
        self._call_format = call_format
        self._turn = plain[covered - 1]

    def suffix(self, *, calls_apart: bool, results_need_calls: bool = False) -> str | None:
        """What follows the turn; None when the template writes it or what is before it anew.

        Args:
            calls_apart: what follows calls is written otherwise than what follows words.
            results_need_calls: a result that follows words is left out.

        Raises:
            InvalidArgumentError: the template refuses the messages.
        """
        if not (calls := self._turn.get("tool_calls")):
            return self.after_words()
        if len(calls) > 1 or not isinstance(calls[0]["function"]["arguments"], Mapping):
            # Some templates refuse that, which is to be said at once.
            _ = self._whole
        if calls_apart:
            found = self.after_calls()
            return found if found is not None or results_need_calls else self.after_words()
        try:
            found = self.after_words()
        except InvalidArgumentError:
            # Such as results without calls before them.
            found = None
        return self.after_calls() if found is None else found

    def after_words(self) -> str | None:
        """As it follows words in the place of the turn."""
        words, before = self._turn["content"], self._before
        plain = words and words == words.strip() and not self._called and not self._thought
        if plain and self._whole.startswith(before + words):
            return self._whole[len(before) + len(words) :]
        marked = {"role": "assistant", "content": _WORDS}
        if self._thought:
            marked |= dict.fromkeys(THOUGHT_KEYS, _THOUGHTS)
        head, mark, suffix = self._text(self._with(marked), prompt=True).partition(_WORDS)
        if not mark or not self._begins(head) or not self._keeps():
            return None
        return suffix

    def after_calls(self) -> str | None:
        """As it follows the calls, which the template writes again."""
        # What follows calls may be written otherwise than what follows words.
        before = self._before
        if not self._last.startswith(before) or not self._whole.startswith(self._last):
            return None
        words = {"role": "assistant", "content": _WORDS}
        said = self._text(self._with(words, last=True), prompt=False)
        end: str | None = said.partition(_WORDS)[2]
        if not self._last.endswith(end or ""):
            end = end_of_calls(self._last[len(before) :], self._call_format)
        if end is None or not self._shows_thoughts():
            return None
        return end + self._whole[len(self._last) :]

    def _begins(self, head: str) -> bool:
        """Whether what stands before the turn's words is what stood before it was sampled."""
        if not self._thought:
            # Space before the words, such as GLM's where thoughts would be, is the model's.
            return head.startswith(self._before) and not head[len(self._before) :].strip()
        opening, mark, _ = head.partition(_THOUGHTS)
        between = opening.removeprefix(self._before).strip()
        return bool(mark) and opening.startswith(self._before) and between in OPENINGS

    def _keeps(self) -> bool:
        """Whether the turn's own words stay as they are."""
        words = self._turn["content"]
        if not words:
            return True
        if not self._called and not self._thought:
            return self._whole[len(self._before) :].lstrip().startswith(words.strip())
        if not self._called:
            return self._whole.find(words.strip(), len(self._before)) >= 0
        return self._keeps_words_before_calls(words)

    def _keeps_words_before_calls(self, words: str) -> bool:
        # Calls are written anew, so that the words cannot be found as they are. Thoughts among
        # them may be shown while the turn is the last and not any more, or never be shown.
        sign = f"<think>\n{_WORDS}\n</think>\n\n" if _END_OF_THOUGHTS in words else _WORDS
        marked = {**self._turn, "content": sign}
        if marked == {"role": "assistant", "content": _WORDS}:
            # Whose render has just been looked at.
            return True
        if _WORDS in self._text(self._with(marked), prompt=True):
            return True
        return _WORDS not in self._text(self._with(marked, last=True), prompt=False)

    def _shows_thoughts(self) -> bool:
        if not self._thought:
            return True
        marked = {**self._turn, **dict.fromkeys(THOUGHT_KEYS, _THOUGHTS)}
        return _THOUGHTS in self._text(self._with(marked), prompt=True)

    def _with(self, turn: Message, *, last: bool = False) -> list[Message]:
        after = [] if last else self._plain[self._covered :]
        return [*self._plain[: self._covered - 1], turn, *after]

    @property
    def _thought(self) -> bool:
        return "reasoning_content" in self._turn

    @cached_property
    def _before(self) -> str:
        return self._text(self._plain[: self._covered - 1], prompt=True)

    @cached_property
    def _last(self) -> str:
        return self._text(self._plain[: self._covered], prompt=False)

    @cached_property
    def _whole(self) -> str:
        return self._text(self._plain, prompt=True)
