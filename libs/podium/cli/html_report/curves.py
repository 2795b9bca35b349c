"""What curves are called: the words that the console has for them too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from podium import assets


class Curve(NamedTuple):
    """A metric of steps, as it is drawn."""

    title: str
    unit: str
    """Or where the number comes from."""

    @property
    def label(self) -> str:
        """The title among other words: without a capital, unless it begins with several."""
        capitals = self.title[:2].isupper()
        return self.title if capitals else self.title[:1].lower() + self.title[1:]


CURVES: Mapping[str, Curve] = {
    name: Curve(**words)
    for name, words in json.loads(assets.CURVES.read_text(encoding="utf-8")).items()
}
"""Those that are drawn unasked, by their metric's name, in their order."""

REWARD = "reward_mean"
SUCCESS = "success_mean"
