"""From a base model's name to its folder.

A revision of a hub's model has a folder of its own, `ORG/NAME@REVISION`: a running
pod's folder never becomes another revision's. Without a revision it is `ORG/NAME`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from podium.core.errors import InvalidArgumentError, NotFoundError, Violation
from podium.core.homes import expanded, home
from podium.local.models.recipe import BUILT_IN, holds, is_model, recipe

REVISION = "PODIUM_MODEL_REVISION"
"""Environment variable: the revision of models of the hub that a process means by their name."""

HUB_NAMES = {"smollm2-135m-instruct": "HuggingFaceTB/SmolLM2-135M-Instruct"}
"""What the Hugging Face hub calls models that have another name here. The weights of SmolLM2 here
are the hub's as a package of 4 bits gives them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


def models_dir() -> Path:
    """The model cache: `$PODIUM_MODELS_DIR`, or `podium/models` in the user's cache."""
    configured = os.environ.get("PODIUM_MODELS_DIR")
    if configured:
        return expanded(configured)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (expanded(cache) if cache else home() / ".cache") / "podium" / "models"


def known() -> list[str]:
    """Names that `resolve` finds now: prepared models, sorted."""
    root = models_dir()
    if not root.is_dir():
        return []
    configs = [*root.glob("*/config.json"), *root.glob("*/*/config.json")]
    folders = (config.parent.relative_to(root).as_posix() for config in configs)
    names = {folder.partition("@")[0] for folder in folders}
    return sorted(name for name in names if _NAME.fullmatch(name))


def cache_path(name: str) -> Path:
    """The folder in the cache that bears the model's name and no revision.

    Raises:
        InvalidArgumentError: `name` is neither `NAME` nor `ORG/NAME`.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            violations=[
                Violation(
                    "base_model",
                    f"got {name!r}; allowed is a model's name, ORG/NAME of a Hugging Face model, "
                    "or an existing folder with a config.json",
                )
            ]
        )
    return models_dir() / name


def own_folder(name: str) -> Path | None:
    """The folder that `name` is the path of, if it is a model's."""
    folder = expanded(name)
    return folder.resolve() if name and is_model(folder) else None


def places(name: str, revision: str) -> list[Path]:
    """Where a revision may be put, best first.

    The second is for where the first holds something else: a revision that an older Podium
    put there, or a model that an older recipe made. Pods may be reading that.

    Raises:
        InvalidArgumentError: `name` is neither `NAME` nor `ORG/NAME`.
    """
    plain = cache_path(name)
    if name in BUILT_IN:
        made = recipe(name, revision)
        return [plain, _at(plain, f"{made['source']} {made['recipe']}")]
    return [_at(plain, revision)] if revision else [plain, _at(plain, "")]


def cached(name: str, revision: str) -> Path | None:
    """The folder that holds exactly this revision (empty: the newest when it was fetched).

    Raises:
        InvalidArgumentError: `name` is neither `NAME` nor `ORG/NAME`.
    """
    plain = cache_path(name)
    for place in places(name, revision):
        if place != plain and is_model(place):
            return place
    return plain if holds(plain, name, revision) else None


def resolve(name: str) -> Path:
    """The folder of base model `name`: config, safetensors, tokenizer.

    An existing folder is taken as it is; anything else is looked up in `models_dir()`, a model
    of the hub at the revision that `$PODIUM_MODEL_REVISION` names. Where it names none, what was
    fetched without a revision goes first, and the only revision that is there is taken too.

    Raises:
        InvalidArgumentError: `name` cannot be a model's name.
        NotFoundError: no such model has been prepared; lists those that have.
    """
    if found := own_folder(name):
        return found
    plain = cache_path(name)
    revision = os.environ.get(REVISION, "") if "/" in name else ""
    if found := cached(name, revision):
        return found
    if not revision:
        if is_model(plain):
            return plain
        others = sorted(path for path in plain.parent.glob(f"{plain.name}@*") if is_model(path))
        if len(others) == 1:
            return others[0]
        if others:
            raise NotFoundError(
                f"base model {name!r} is in {models_dir()} at several revisions: "
                f"{', '.join(path.name for path in others)}. Set {REVISION}",
                reason="MODEL_NOT_FOUND",
                metadata={"model": name, "known": ",".join(path.name for path in others)},
            )
    names = sorted({*known(), *BUILT_IN})
    at = f" at revision {revision!r}" if revision else ""
    option = f" --revision {revision}" if revision else ""
    raise NotFoundError(
        f"base model {name!r}{at} is not in {models_dir()}; known are {', '.join(names)}. "
        f"Run `python -m podium.local.models.prepare {name}{option}`, or name a folder with a "
        "config.json",
        reason="MODEL_NOT_FOUND",
        metadata={"model": name, "known": ",".join(names)},
    )


def _at(plain: Path, revision: str) -> Path:
    # A branch may have slashes in its name.
    return plain.with_name(f"{plain.name}@{quote(revision, safe='')}")
