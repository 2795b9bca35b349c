"""Where a user's own files are."""

from __future__ import annotations

from pathlib import Path


def home() -> Path:
    """The user's home; the root folder for one who has none, as a container's may not.

    Docker does likewise (`-u 12345`): nothing of theirs is there, and what cannot be written there
    is told as such.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def expanded(path: str) -> Path:
    """The path with the home for a leading `~` or `~user`; as it is where there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
