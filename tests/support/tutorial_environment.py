"""A class as the tutorial's readers write it: it knows nothing of Podium."""

from __future__ import annotations

from typing import Any

import numpy


class InboxEnvironment:
    """Find the email.

    Actions are dicts, as in the tutorial.
    """

    def __init__(self, query: str = "invoice", answer: int = 1) -> None:
        self.query = query
        self.answer = answer
        self.closed = 0

    async def reset(self) -> dict[str, Any]:
        self.state = {"query": self.query, "search_results": [], "step": 0}
        return self.state

    async def step(
        self, action: dict[str, Any]
    ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        self.state["step"] += 1
        if action["type"] == "search":
            self.state["search_results"] = [0, 1]
            return self.state, 0.27, False, {"found": numpy.int64(2)}
        right = action["number"] == self.answer
        return self.state, float(right), numpy.bool_(True), {}

    def close(self) -> None:
        self.closed += 1


class Dice:
    """Throws, without a word of asyncio; what it does next is in the action."""

    def reset(self, seed: int) -> int:
        self.seed = seed
        return seed % 6

    def step(self, action: str) -> Any:
        match action:
            case "five":
                return 1, 0.0, False, False, {}
            case "none":
                return None
            case "done":
                return 1, 0.0, 1, {}
            case "reward":
                return 1, "much", True, {}
            case "nan":
                return 1, float("nan"), True, {}
            case _:
                return self.seed, numpy.float32(0.5), True, None
