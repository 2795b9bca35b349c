"""Which of a job's environments each group is of: a pure function of seed, step and index.

Systematic sampling (W. Madow and L. Madow, 1944): a step's n groups stand at the points
(i + u) / n of the weights laid end to end, with one u in [0, 1) of each step. The u of the steps
follow the golden ratio from where the seed begins (a Kronecker sequence), which is spread more
evenly than chance. So every step has each share up to one group, all steps together up to a few,
and nothing is stored.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from podium.types.v1 import spec_pb2

_GOLDEN = (math.sqrt(5) - 1) / 2


class Mixture:
    """Draws from environments by their weights."""

    def __init__(
        self,
        environments: Sequence[spec_pb2.WeightedEnvironment],
        seed: int,
        groups_per_step: int,
    ) -> None:
        """Of every step at least one of `environments` takes part."""
        self._environments = environments
        # A hash and not `random`, whose numbers may differ between Python versions.
        digest = hashlib.sha256(f"{seed}/environments".encode()).digest()
        self._begin = int.from_bytes(digest[:6], "big") / 2**48
        self._groups = groups_per_step
        self._before = [[0] * len(environments)]
        """By step from 1: how many groups each had in the steps before."""

    def draw(self, step: int, index: int) -> tuple[int, int]:
        """Of group `index` (from 0) of `step` (from 1).

        Returns:
            Which environment, and which of all its groups in the job this is, from 0.
        """
        ends = self._ends(step)
        found = bisect_right(ends, index)
        return found, self.before(step)[found] + index - (ends[found - 1] if found else 0)

    def redraw(self, step: int, index: int, times: int) -> tuple[int, int]:
        """In place of what `draw` says, of which nothing came: another, and the next one each time.

        Of the environments that take part in the step the following one, where there are several,
        and of its groups one of coming steps.
        """
        found, position = self.draw(step, index)
        several = self.taking_part(step)
        return several[
            (several.index(found) + times) % len(several)
        ], position + times * self._groups

    def taking_part(self, step: int) -> list[int]:
        """Which environments the step's groups may be of."""
        return [i for i, each in enumerate(self._environments) if takes_part(each, step)]

    def pick(self, step: int, number: int) -> int:
        """Which environment the job's group `number` (from 0) is of, drawn while `step` is next.

        Where groups are not drawn for a step, each is a point of the weights by itself; the
        points of any run of groups are spread evenly.
        """
        weights = [each.weight if takes_part(each, step) else 0.0 for each in self._environments]
        sums = list(accumulate(weights))
        return bisect_right(sums, sums[-1] * ((self._begin + number * _GOLDEN) % 1.0))

    def before(self, step: int) -> list[int]:
        """How many groups of each environment the steps before one draw."""
        while len(self._before) < step:
            ends = self._ends(len(self._before))
            counts = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
            self._before.append([a + b for a, b in zip(self._before[-1], counts, strict=True)])
        return self._before[step - 1]

    def _ends(self, step: int) -> list[int]:
        """The first index after each environment's groups."""
        weights = [each.weight if takes_part(each, step) else 0.0 for each in self._environments]
        sums = list(accumulate(weights))
        u = (self._begin + step * _GOLDEN) % 1.0
        return [
            self._groups if each >= sums[-1] else math.ceil(self._groups * (each / sums[-1]) - u)
            for each in sums
        ]


def takes_part(environment: spec_pb2.WeightedEnvironment, step: int) -> bool:
    """Whether groups of the step may be of it."""
    last = environment.to_step if environment.HasField("to_step") else math.inf
    return environment.from_step <= step <= last
