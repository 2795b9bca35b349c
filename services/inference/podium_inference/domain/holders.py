"""Which processes of a pool have calls of which rollout: by this the death of one is noticed.

What a process has captured dies with it, and whoever is asked for a rollout's
calls afterwards sees only those of the others, which look whole.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict

_MOST_KEYS = 100_000
"""Keys remembered; about as many as calls are kept, and each is a few hundred bytes."""


class Holders:
    """What this process knows of them. Of one event loop."""

    def __init__(self, most_keys: int = _MOST_KEYS) -> None:
        self.process = uuid.uuid4().hex
        """This one; the next one in its pod has another name."""
        self._most_keys = most_keys
        # In the order of their last notes.
        self._known: OrderedDict[str, set[str]] = OrderedDict()

    def note(self, key: str, process: str) -> None:
        """Remembers that a process has, or is about to have, calls under the key."""
        self._known.setdefault(key, set()).add(process)
        self._known.move_to_end(key)
        while len(self._known) > self._most_keys:
            self._known.popitem(last=False)

    def of(self, key: str) -> set[str]:
        """Every process that has been noted."""
        return set(self._known.get(key, ()))
