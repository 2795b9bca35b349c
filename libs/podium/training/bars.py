"""Progress bars: of rich in a terminal, of IPython in a notebook."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

_WIDTH = 30


class Bar(Protocol):
    """How far something is."""

    def show(self, done: int, total: int, text: str) -> None:
        """Draws where things stand."""

    def say(self, text: str) -> None:
        """Writes a line that stays."""


class TerminalBar:
    """A progress bar of rich's."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task

    def show(self, done: int, total: int, text: str) -> None:
        """Draws where things stand."""
        self._progress.update(self._task, completed=done, total=total, text=text)

    def say(self, text: str) -> None:
        """Writes a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


class NotebookBar:
    """A line of a cell's output that is drawn anew.

    rich's own bars need ipywidgets in a notebook, which a plain kernel does not have.
    """

    def __init__(self, description: str, display: Any) -> None:
        self._description = description
        self._handle = display({"text/plain": description}, raw=True, display_id=True)

    def show(self, done: int, total: int, text: str) -> None:
        """Draws where things stand."""
        full = round(_WIDTH * min(1.0, done / total)) if total > 0 else 0
        drawn = "━" * full + "╌" * (_WIDTH - full)
        line = f"{self._description} {drawn} {done}/{total}  {text}".rstrip()
        self._handle.update({"text/plain": line}, raw=True)

    def say(self, text: str) -> None:
        """Writes a line into the cell's output."""
        print(text)


@contextmanager
def shown(description: str | None) -> Iterator[Bar | None]:
    """A bar while the block runs; None without a description, or where none can be shown.

    One can in a notebook, and on a terminal with rich.
    """
    if description is None:
        yield None
    elif (display := _notebook()) is not None:
        yield NotebookBar(description, display)
    elif sys.stderr.isatty():
        with _terminal(description) as bar:
            yield bar
    else:
        yield None


def _notebook() -> Any:
    """IPython's `display` where this process is a notebook's kernel; else None."""
    # Nothing is imported that is not: only a kernel has IPython before us.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    return importlib.import_module("IPython.display").display


@contextmanager
def _terminal(description: str) -> Iterator[TerminalBar | None]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield TerminalBar(progress, progress.add_task(description, total=None, text=""))
