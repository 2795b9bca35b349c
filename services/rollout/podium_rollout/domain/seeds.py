"""Seeds that depend on ids alone, so that a retry draws what the first try would have drawn."""

from __future__ import annotations

import hashlib


def derive(seed: int, *parts: object) -> int:
    """A number below 2**62 from a seed and what it is for."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2
