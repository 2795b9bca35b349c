"""What makes two scenarios the same, and which of them are held out: functions of content alone."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

TRAIN, HELDOUT = "train", "heldout"

_SPACE = re.compile(r"\s+")


def content_key(data: Mapping[str, Any]) -> bytes:
    """The same 32 bytes for the same JSON values, letter case and white space aside."""
    text = json.dumps(_normal(data), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def made_id(content: bytes) -> str:
    """The id of a scenario that has none: of its content, so that it stays when a file grows."""
    return f"s-{content.hex()[:20]}"


def hash_split(key: bytes, heldout: float) -> str:
    """`heldout` for a share of all keys, else `train`.

    A key's side depends on nothing else: new rows move no old ones, and what is held out at one
    share is held out at every greater one.
    """
    drawn = int.from_bytes(hashlib.sha256(b"split/" + key).digest()[:8], "big") / 2**64
    return HELDOUT if drawn < heldout else TRAIN


def _normal(value: Any) -> Any:
    if isinstance(value, str):
        return _SPACE.sub(" ", unicodedata.normalize("NFKC", value)).strip().casefold()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {name: _normal(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    return value
