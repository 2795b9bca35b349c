"""Which of the models that an OpenAI-compatible API lists stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from podium.core.outside import clean


def frozen_model(body: bytes) -> str | None:
    """The first listed model that is no policy of a job; empty when all are, None for no list.

    A policy is `JOB@VERSION`, the `JOB` whose versions stand beside it, or a model that
    names the one which it adapts as its parent, as vLLM's lists do.
    """
    try:
        listed = [entry for entry in json.loads(body)["data"] if _name(entry)]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not listed:
        return None
    names = [_name(entry) for entry in listed]
    jobs = {name.rpartition("@")[0] for name in names if _is_version(name)}
    for entry, name in zip(listed, names, strict=True):
        if not entry.get("parent") and not _is_version(name) and name not in jobs:
            return clean(name)
    return ""


def _is_version(name: str) -> bool:
    job, sign, version = name.rpartition("@")
    return bool(job and sign) and version.isdecimal()


def _name(entry: Any) -> str:
    name = entry.get("id") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""
