"""Whether a task says what another one says already."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

ALIKE = 0.8
"""Share of common words from which two tasks are one."""

_WORD = re.compile(r"\w+")


class KnownTasks:
    """The tasks that are there, to compare new ones with."""

    def __init__(self, tasks: Iterable[str] = ()) -> None:
        """`tasks` are taken as different."""
        self._words = [_words(task) for task in tasks]

    def add(self, task: str) -> bool:
        """Takes a task; False, and not taken, when one like it is there.

        Alike means that of all words of the two, a share of `ALIKE` is in both (Jaccard);
        numbers count as words, so that tasks which differ in a number alone are alike when they
        are long.
        """
        words = _words(task)
        if any(_overlap(words, other) >= ALIKE for other in self._words):
            return False
        self._words.append(words)
        return True


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    if not one or not other:
        return float(one == other)
    # Sets of very different sizes cannot be alike, and most pairs are such.
    if min(len(one), len(other)) < ALIKE * max(len(one), len(other)):
        return 0.0
    return len(one & other) / len(one | other)
