"""The page of what `podium` exports, with its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import podium
import podium.core.errors
import podium.environments
import podium.rewards
import podium.sdk.checkpoints
import podium.sdk.environments
import podium.sdk.jobs
import podium.sdk.judge
import podium.sdk.models
import podium.sdk.policies
from sphinx.application import Sphinx

MODULES = (
    podium,
    podium.environments,
    podium.rewards,
    podium.core.errors,
    # What the attributes of a client are.
    podium.sdk.jobs,
    podium.sdk.policies,
    podium.sdk.environments,
    podium.sdk.judge,
    podium.sdk.checkpoints,
    podium.sdk.models,
)


# What reStructuredText would take for markup: of our docstrings only backticks are.
_MARKUP = re.compile(r"(?<=\w)_(?!\w)|[*|]")


def plain(lines: list[str]) -> list[str]:
    """A docstring's lines, in which `code` alone is markup, as reStructuredText has it."""
    parts = "\n".join(lines).replace("``", "`").split("`")
    if len(parts) % 2 == 0:
        return [line.replace("`", "\\`") for line in lines]
    inert = [part if at % 2 else _MARKUP.sub(r"\\\g<0>", part) for at, part in enumerate(parts)]
    # Code that ends in the middle of a word needs an end that is not seen.
    inert[2::2] = [f"\\ {part}" if part[:1].isalnum() else part for part in inert[2::2]]
    return "``".join(inert).split("\n")


def names(module: ModuleType) -> list[str]:
    """What a module exports; of one that does not say, its own public classes and functions."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    ]


def page(modules: tuple[ModuleType, ...]) -> str:
    """The page, in reStructuredText, which is what autodoc speaks."""
    return "\n".join(_page(modules))


def _page(modules: tuple[ModuleType, ...]) -> Iterator[str]:
    yield from ("Python", "======", "")
    yield "What the package exports. Each name is imported when it is first used."
    for module in modules:
        yield from ("", module.__name__, "-" * len(module.__name__), "")
        yield from (f".. module:: {module.__name__}", "")
        for name in names(module):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            kind = "class" if inspect.isclass(thing) else "function" if callable(thing) else "data"
            yield f".. auto{kind}:: {module.__name__}.{name}"
            if kind == "class":
                yield "   :members:"
            yield ""


def _write(app: Sphinx) -> None:
    path = Path(app.srcdir) / "build" / "pages" / "python.rst"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(MODULES))


def _docstring(
    _app: Sphinx, _kind: str, _name: str, _thing: object, _options: object, lines: list[str]
) -> None:
    lines[:] = plain(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry."""
    app.connect("builder-inited", _write)
    # Before napoleon, whose own markup stays.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    return {"parallel_read_safe": True}
