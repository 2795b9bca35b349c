"""One rule over many things in one test: a test of each would cost more than the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


def wrong_of(things: Iterable[tuple[str, T]], faults: Callable[[T], Iterable[str]]) -> str:
    """Every fault of every thing, each on a line of its own that begins with the thing's name."""
    return "\n".join(f"{name}: {fault}" for name, thing in things for fault in faults(thing))


def wrong_in(pages: Iterable[str], faults: Callable[[str], Iterable[str]]) -> str:
    """The same of files, by their paths in the repository and their texts."""
    return wrong_of(((page, (ROOT / page).read_text()) for page in pages), faults)
