"""Inference pools by name, as a setting: `small=host:50053,large=host:50053`, or a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
DEFAULT_POOL = "default"
"""The name of the one pool of an installation that names none."""


def parse_pools(value: object) -> dict[str, str]:
    """Addresses by name, in their order.

    Raises:
        ValueError: what is written is neither form, a name is no DNS label or
            stands there twice, or an address is missing.
    """
    found: dict[str, str] = {}
    for name, address in _entries(value):
        if not _NAME.fullmatch(name):
            raise ValueError(f"got the pool {name!r}; allowed are DNS labels, such as qwen-7b")
        if name in found:
            raise ValueError(f"the pool {name!r} stands there twice")
        if not isinstance(address, str) or not address.strip():
            raise ValueError(f"the pool {name!r} has no address; allowed is host:port")
        found[name] = address.strip()
    return found


def _entries(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(str(name), address) for name, address in value.items()]
    if not isinstance(value, str):
        raise ValueError("allowed are NAME=ADDRESS,… and a JSON object")
    if value.lstrip().startswith("{"):
        # As pairs, so that a name that stands there twice is seen.
        pairs: list[tuple[str, object]] = json.loads(value, object_pairs_hook=list)
        return pairs
    entries: list[tuple[str, object]] = []
    for part in filter(None, map(str.strip, value.split(","))):
        name, separator, address = part.partition("=")
        if not separator:
            raise ValueError(f"got {part!r}; allowed is NAME=ADDRESS")
        entries.append((name.strip(), address))
    return entries


PoolAddresses = Annotated[dict[str, str], NoDecode, BeforeValidator(parse_pools)]
"""The type of such a setting. An error in JSON is a ValueError too."""
