"""Pools by name, as a setting: `small=host:50053,large=host:50053`, or a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
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
    return {name: _address(name, address) for name, address in _named(value).items()}


class TrainerPoolSetting(BaseModel):
    """A trainer that several jobs share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    address: str
    """`host:port`."""
    base_model: str = ""
    """Whose jobs it takes; empty for those of whoever comes first, until nobody is there."""
    max_jobs: int = Field(default=0, ge=0, le=1000)
    """At once, if that is fewer than the trainer takes; 0 for as many as it takes."""
    gpus: int = Field(default=0, ge=0, le=1_000_000)
    """For accounts."""
    scales_to_zero: bool = False
    """Whether it is there only while jobs wait for it or train at it."""


def parse_trainer_pools(value: object) -> dict[str, TrainerPoolSetting]:
    """Trainer pools by name, in their order: addresses, or in JSON all of `TrainerPoolSetting`.

    Raises:
        ValueError: as `parse_pools`, or a pool has a key that there is not, or a wrong value.
    """
    found = {}
    for name, told in _named(value).items():
        if isinstance(told, TrainerPoolSetting):
            found[name] = told
            continue
        # JSON objects come as lists of pairs: see `_entries`.
        fields: dict[str, Any] = {"address": told}
        if isinstance(told, list | Mapping):
            pairs = list(told.items()) if isinstance(told, Mapping) else told
            if not all(isinstance(pair, tuple) for pair in pairs):
                raise ValueError(f"the trainer pool {name!r} is a list; allowed is an object")
            fields = dict(pairs)
        address = _address(name, fields.get("address"))
        try:
            found[name] = TrainerPoolSetting(**{**fields, "address": address})
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            field = ".".join(map(str, wrong["loc"]))
            got = f"got {wrong['input']!r}: {wrong['msg']}"
            raise ValueError(f"the trainer pool {name!r}, {field}: {got}") from None
    return found


def _address(name: str, address: object) -> str:
    if not isinstance(address, str) or not address.strip():
        raise ValueError(f"the pool {name!r} has no address; allowed is host:port")
    return address.strip()


def _named(value: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, told in _entries(value):
        if not _NAME.fullmatch(name):
            raise ValueError(f"got the pool {name!r}; allowed are DNS labels, such as qwen-7b")
        if name in found:
            raise ValueError(f"the pool {name!r} stands there twice")
        found[name] = told
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
TrainerPoolSettings = Annotated[
    dict[str, TrainerPoolSetting], NoDecode, BeforeValidator(parse_trainer_pools)
]
"""The same of trainer pools."""
