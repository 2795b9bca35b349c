"""The double of a notebook's kernel: IPython as far as bars use it. The lock has no IPython."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest


@dataclass
class Cell:
    """What a cell's output shows: each display as it is now, and how often it was drawn."""

    displays: list[str] = field(default_factory=list)
    drawn: int = 0

    def display(self, data: Mapping[str, str], *, raw: bool, display_id: bool) -> _Handle:
        """As IPython's."""
        assert raw
        assert display_id
        self.displays.append("")
        handle = _Handle(self, len(self.displays) - 1)
        handle.update(data, raw=True)
        return handle


@dataclass
class _Handle:
    cell: Cell
    at: int

    def update(self, data: Mapping[str, str], *, raw: bool) -> None:
        """As IPython's."""
        assert raw
        self.cell.displays[self.at] = data["text/plain"]
        self.cell.drawn += 1


def notebook(patch: pytest.MonkeyPatch, *, kernel: bool = True) -> Cell:
    """This process is a kernel's, or IPython's in a terminal, until the patch is undone."""
    cell = Cell()
    top: Any = ModuleType("IPython")
    inner: Any = ModuleType("IPython.display")
    shell = type("Shell", (), {"kernel": object()} if kernel else {})()
    top.get_ipython, top.display, inner.display = lambda: shell, inner, cell.display
    patch.setitem(sys.modules, "IPython", top)
    patch.setitem(sys.modules, "IPython.display", inner)
    return cell
