"""Tasks for stockroom.yaml: `python examples/mcp_rl/stockroom_tasks.py > stockroom.jsonl`.

Each asks for one number of one part. No held-out part is asked for in training, so that no answer
can be remembered.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from stockroom import fact  # type: ignore[import-not-found]

ASKED = {
    "shelf": ("On which shelf is part {part}?", "Where does part {part} lie?"),
    "stock": ("How many of part {part} are there?", "How much of part {part} is in stock?"),
    "price": ("What does part {part} cost?", "What is the price of part {part}?"),
}
LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


def tasks() -> Iterator[Mapping[str, Any]]:
    """144 scenarios to train on and 100 held out, of as many parts."""
    draw = random.Random(0)
    parts = draw.sample([f"{x}{number}" for x in LETTERS for number in range(100, 1000)], 244)
    for place, part in enumerate(parts):
        what = draw.choice(sorted(ASKED))
        data = {
            "task": draw.choice(ASKED[what]).format(part=part),
            "answer": str(fact(what, part)),
        }
        split = "train" if place < 144 else "heldout"
        yield {"id": f"{what}-{part}", "split": split, "data": data}


if __name__ == "__main__":
    for row in tasks():
        print(json.dumps(row))
