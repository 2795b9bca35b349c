"""What a judge is asked, and how its answer is read, whatever the scorer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from string import ascii_lowercase
from typing import Protocol

from podium_judge.domain.verdict import ATTEMPT, Subject

_NONCE_LETTERS = 4
_TRIES = 8


@dataclass(frozen=True)
class JudgePrompt:
    """A request to the judge model, and how to read its answer."""

    system: str
    user: str
    labels: tuple[str, ...]
    """The ids under which an answer has its scores, in the question's order."""
    places: tuple[int, ...] = ()
    """`places[i]` is where attempt i of the question stands, from 1; its id as a number. None
    where nothing is compared."""
    bytes_left_out: int = 0
    subject: Subject = ATTEMPT
    """What the labels are of."""

    def digest(self) -> str:
        """Hex SHA-256 of its words: the system's, a NUL and the user's."""
        return hashlib.sha256(
            f"{self.system}\0{self.user}".encode(errors="surrogatepass")
        ).hexdigest()


class JudgeQuestion(Protocol):
    """What is asked: the same for every judge."""

    def prompt(self, seed: str, max_tokens: int = 0) -> JudgePrompt:
        """The question in words, always the same; `seed` fixes what order there is.

        `max_tokens` is about the most tokens of it, the question's own for 0.
        """
        ...

    def digest(self) -> str:
        """Hex SHA-256 of all that an answer depends on."""
        ...


def nonce_of(seed: str, texts: Iterable[str]) -> str:
    """What the tags of a prompt end in: of `seed`, and in none of the texts.

    A policy that writes a text cannot know it: it follows from all that the prompt shows, that
    text among it, and another is taken when a text holds it nevertheless.
    """
    texts = list(texts)
    for number in count():
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        # Few, as each tag costs its tokens; more where whoever wrote the texts tried them all.
        letters = digest[: _NONCE_LETTERS + number // _TRIES]
        nonce = "".join(ascii_lowercase[each % len(ascii_lowercase)] for each in letters)
        if not any(f"-{nonce}" in text for text in texts):
            break
    return nonce
