"""The repository's Python as text, found and read once in a process: there are 900 such files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def _below(folder: str) -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def texts(*folders: str) -> dict[str, str]:
    """By their paths in the repository, the contracts' generated modules among them."""
    return {file: text for folder in folders for file, text in _below(folder).items()}


def written(*folders: str) -> dict[str, str]:
    """The same without the contracts' generated modules."""
    return {file: text for file, text in texts(*folders).items() if "_pb2" not in file}
