"""Covering sets: few cases in which every two levels of any two factors meet."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product

Case = dict[str, str]
"""Factor to level."""
Pair = frozenset[tuple[str, str]]


def pairs_of(case: Mapping[str, str]) -> set[Pair]:
    """The pairs of levels that a case holds."""
    return {frozenset(two) for two in combinations(case.items(), 2)}


class Covering:
    """Of factors of which some levels exclude each other."""

    def __init__(
        self,
        factors: Mapping[str, Sequence[str]],
        valid: Callable[[Case], bool],
        deciding: Sequence[str],
    ) -> None:
        """The first level of each factor goes with everything; `deciding` are the factors on whose
        levels it depends what others allow."""
        self._factors = factors
        self._valid = valid
        neutral = {name: levels[0] for name, levels in factors.items()}
        settings = [
            neutral | dict(zip(deciding, chosen, strict=True))
            for chosen in product(*(factors[name] for name in deciding))
        ]
        self.pairs = {
            frozenset({(one, a), (two, b)})
            for one, two in combinations(factors, 2)
            for a, b in product(factors[one], factors[two])
            if any(valid(case) for case in (each | {one: a, two: b} for each in settings))
        }
        """Those that some valid case holds."""

    def cases(self, seed: int = 2) -> list[Case]:
        """Valid cases that hold all pairs; the same for the same seed."""
        rng = random.Random(seed)
        left = set(self.pairs)
        found = []
        while left:
            first = min(left, key=sorted)
            made = [self._around(first, rng) for _ in range(40)]
            best = max((case for case in made if case), key=lambda case: len(pairs_of(case) & left))
            left -= pairs_of(best)
            found.append(best)
        return found

    def _around(self, pair: Iterable[tuple[str, str]], rng: random.Random) -> Case:
        """A case that holds the pair; empty where none was found."""
        case = dict(pair)
        names = [name for name in self._factors if name not in case]
        for name in rng.sample(names, len(names)):
            fits = [
                level
                for level in self._factors[name]
                if all(frozenset({(name, level), each}) in self.pairs for each in case.items())
            ]
            if not fits:
                return {}
            case[name] = rng.choice(fits)
        ordered = {name: case[name] for name in self._factors}
        return ordered if self._valid(ordered) else {}
