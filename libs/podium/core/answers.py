"""How right a short answer is, as SQuAD measures it (Rajpurkar et al. 2016).

Letter case, punctuation and articles aside.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact_match(answer: str, accepted: Sequence[str]) -> bool:
    """Whether it has the words of an accepted answer, in order; no words match none."""
    words = _words(answer)
    return bool(words) and any(words == _words(text) for text in accepted)


def contains_answer(answer: str, accepted: Sequence[str]) -> bool:
    """Whether the words of an accepted answer stand in it, together and in order."""
    words = _words(answer)
    return any(
        words[start : start + len(wanted)] == wanted
        for wanted in map(_words, accepted)
        if wanted
        for start in range(len(words))
    )


def token_f1(answer: str, accepted: Sequence[str]) -> float:
    """Best harmonic mean of precision and recall in words, in [0, 1]; no answer is 0."""
    words = _words(answer)
    if not words:
        return 0.0
    return max((_overlap_f1(words, _words(text)) for text in accepted), default=0.0)


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _overlap_f1(answer: Sequence[str], accepted: Sequence[str]) -> float:
    common = sum((Counter(answer) & Counter(accepted)).values())
    return 2 * common / (len(answer) + len(accepted))
