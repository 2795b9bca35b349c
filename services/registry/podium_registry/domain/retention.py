"""Which versions of a model a retention rule keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rated:
    """A version and its numbers: those of its training, and over them those of its evaluation."""

    version: int
    numbers: Mapping[str, float]
    has_state: bool
    """Whether a job can go on from it."""


@dataclass(frozen=True)
class Rule:
    """Keep the newest, and the best by a metric."""

    last: int
    best: int
    metric: str
    lower_is_better: bool


def kept(newest_first: Sequence[Rated], rule: Rule) -> set[int]:
    """The numbers of the versions that the rule keeps.

    A version without the metric is never among the best; of equals the newer is better. The
    newest with state stays in any case, since a job goes on from it after a crash; and so does
    the one before it, if more than one is to stay, since that may be damaged.
    """
    ranked = []
    for each in newest_first:
        if rule.metric in each.numbers:
            value = each.numbers[rule.metric]
            ranked.append((value if rule.lower_is_better else -value, -each.version))
    best = {-version for _, version in sorted(ranked)[: rule.best]}
    resumable = [each.version for each in newest_first if each.has_state][: min(rule.last, 2)]
    return best | {each.version for each in newest_first[: rule.last]} | set(resumable)
