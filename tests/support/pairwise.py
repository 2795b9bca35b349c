"""Covering sets: few cases in which every two levels of any two factors meet, and chosen more."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import combinations, product

Case = dict[str, str]
"""Factor to level."""
Met = frozenset[tuple[str, str]]
"""Levels of different factors that a case holds at once."""


def pairs_of(case: Mapping[str, str]) -> set[Met]:
    """The pairs of levels that a case holds."""
    return {frozenset(two) for two in combinations(case.items(), 2)}


def met_with(case: Mapping[str, str], closely: Collection[str]) -> set[Met]:
    """Each level that a case holds, together with those of all of `closely`."""
    core = {(name, case[name]) for name in closely}
    return {frozenset({each, *core}) for each in case.items() if each[0] not in closely}


class Covering:
    """Of factors of which some levels exclude each other."""

    def __init__(
        self,
        factors: Mapping[str, Sequence[str]],
        valid: Callable[[Case], bool],
        deciding: Sequence[str],
        closely: Sequence[str] = (),
    ) -> None:
        """The first level of each factor goes with everything; `deciding` are the factors on whose
        levels it depends what others allow. Every level meets each combination of `closely`'s."""
        self._factors = factors
        self._valid = valid
        neutral = {name: levels[0] for name, levels in factors.items()}
        settings = [
            neutral | dict(zip(deciding, chosen, strict=True))
            for chosen in product(*(factors[name] for name in deciding))
        ]

        def found(groups: Iterable[Sequence[str]]) -> set[Met]:
            return {
                frozenset(zip(names, levels, strict=True))
                for names in groups
                for levels in product(*(factors[name] for name in names))
                if any(valid(each | dict(zip(names, levels, strict=True))) for each in settings)
            }

        self.pairs = found(combinations(factors, 2))
        """Those that some valid case holds."""
        self.closely = found(
            (name, *closely) for name in factors if closely and name not in closely
        )
        """Each level with every combination of `closely`'s, where some valid case holds it."""
        self._together = closely

    def cases(self, seed: int = 2) -> list[Case]:
        """Valid cases that hold all of them; the same for the same seed."""
        rng = random.Random(seed)
        left = self.pairs | self.closely
        found = []
        while left:
            # The rarer first: what holds three has pairs by the way.
            first = max(left, key=lambda met: (len(met), sorted(met)))
            made = [self._around(first, rng) for _ in range(40)]
            best = max(
                (case for case in made if case), key=lambda case: len(self._met(case) & left)
            )
            left -= self._met(best)
            found.append(best)
        return found

    def _met(self, case: Case) -> set[Met]:
        return pairs_of(case) | (met_with(case, self._together) if self._together else set())

    def _around(self, met: Iterable[tuple[str, str]], rng: random.Random) -> Case:
        """A case that holds what is to meet; empty where none was found."""
        case = dict(met)
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
