"""From a base model's name to its folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from podium.core.errors import InvalidArgumentError, NotFoundError, Violation

BUILT_IN = ("smollm2-135m-instruct",)
"""Models that `podium.models.prepare` makes without any network."""

HUB_NAMES = {"smollm2-135m-instruct": "HuggingFaceTB/SmolLM2-135M-Instruct"}
"""What the Hugging Face hub calls models that have another name here. The weights of SmolLM2 here
are the hub's as a package of 4 bits gives them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")


def models_dir() -> Path:
    """The model cache: `$PODIUM_MODELS_DIR`, or `podium/models` in the user's cache."""
    configured = os.environ.get("PODIUM_MODELS_DIR")
    if configured:
        return Path(configured).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "podium" / "models"


def is_model(path: Path) -> bool:
    """Whether `path` is a folder in Transformers' layout."""
    return (path / "config.json").is_file()


def known() -> list[str]:
    """Names that `resolve` finds now: prepared models, sorted."""
    root = models_dir()
    if not root.is_dir():
        return []
    configs = [*root.glob("*/config.json"), *root.glob("*/*/config.json")]
    return sorted(
        name
        for name in (config.parent.relative_to(root).as_posix() for config in configs)
        if _NAME.fullmatch(name)
    )


def cache_path(name: str) -> Path:
    """Where the model `name` belongs in the cache.

    Raises:
        InvalidArgumentError: `name` is neither `NAME` nor `ORG/NAME`.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            violations=[
                Violation(
                    "base_model",
                    f"got {name!r}; allowed is a model's name, ORG/NAME of a Hugging Face model, "
                    "or an existing folder",
                )
            ]
        )
    return models_dir() / name


def resolve(name: str) -> Path:
    """The folder of base model `name`: config, safetensors, tokenizer.

    An existing folder is taken as it is; anything else is looked up in `models_dir()`.

    Raises:
        InvalidArgumentError: `name` cannot be a model's name.
        NotFoundError: no such model has been prepared; lists those that have.
    """
    if name:
        folder = Path(name).expanduser()
        if is_model(folder):
            return folder.resolve()
    path = cache_path(name)
    if is_model(path):
        return path
    names = sorted({*known(), *BUILT_IN})
    raise NotFoundError(
        f"base model {name!r} is not in {models_dir()}; known are {', '.join(names)}. "
        f"Run `python -m podium.models.prepare {name}`, or name a folder with a config.json",
        reason="MODEL_NOT_FOUND",
        metadata={"model": name, "known": ",".join(names)},
    )
