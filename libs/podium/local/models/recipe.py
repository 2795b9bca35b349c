"""Which model a folder of the cache holds, and how it came to be.

Light: reads one small file of the folder.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

from podium.local.models.package import PACKAGE, VERSION

BUILT_IN = ("smollm2-135m-instruct",)
"""Models that `podium.local.models.prepare` makes without a hub."""

RECIPE_FILE = "podium-prepared.json"
"""Stands in every folder that Podium made; without it somebody else filled the folder."""

# Of the conversion of built-in models; one that an older recipe made is not taken.
_RECIPE = 2
_HUB = "hub"
# Where huggingface_hub, told to download into a folder, notes each file's commit.
_NOTES = Path(".cache", "huggingface", "download")


def is_model(path: Path) -> bool:
    """Whether `path` is a folder in Transformers' layout."""
    return (path / "config.json").is_file()


def recipe(name: str, revision: str) -> dict[str, object]:
    """What `RECIPE_FILE` says of model `name`: it changes when the result would."""
    if name not in BUILT_IN:
        return {"recipe": _RECIPE, "source": f"{_HUB} {revision}".strip()}
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = VERSION
    return {"recipe": _RECIPE, "source": f"{PACKAGE} {version}"}


def made_by(folder: Path) -> dict[str, object]:
    """The recipe that a folder was made by; empty when Podium did not make it."""
    try:
        return dict(json.loads((folder / RECIPE_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def holds(folder: Path, name: str, revision: str) -> bool:
    """Whether a folder that bears the name alone holds this very revision of it.

    A folder that somebody else filled is what he says it is, where no revision is asked for;
    with one, where the hub's client noted the commit.
    """
    if not is_model(folder):
        return False
    made = made_by(folder)
    if name in BUILT_IN:
        return made == recipe(name, revision)
    if made:
        return made.get("source") == recipe(name, revision)["source"]
    return not revision or _noted_commit(folder) == revision


def _noted_commit(folder: Path) -> str:
    try:
        return (
            (folder / _NOTES / "config.json.metadata")
            .read_text(encoding="utf-8")
            .split("\n")[0]
            .strip()
        )
    except (OSError, ValueError):
        return ""
