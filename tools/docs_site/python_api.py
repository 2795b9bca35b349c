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
import podium.core.time_limits
import podium.core.trajectory_rows
import podium.environments
import podium.environments.sandbox
import podium.environments.scenarios
import podium.rewards
import podium.sdk
import podium.sdk.analytics
import podium.sdk.checkpoints
import podium.sdk.environments
import podium.sdk.evaluation
import podium.sdk.evaluations
import podium.sdk.jobs
import podium.sdk.judge
import podium.sdk.models
import podium.sdk.policies
import podium.sdk.sessions
import podium.sdk.sync
import podium.sdk.sync_models
import podium.training
import podium.training.backend
from sphinx.application import Sphinx

# A thing that several of these export is told once, in the first.
MODULES = (
    podium,
    podium.environments,
    podium.environments.scenarios,
    podium.environments.sandbox,
    podium.core.time_limits,
    podium.rewards,
    podium.training,
    podium.training.backend,
    podium.core.errors,
    podium.sdk,
    # What the attributes of a client are.
    podium.sdk.jobs,
    podium.sdk.policies,
    podium.sdk.environments,
    podium.sdk.judge,
    podium.sdk.checkpoints,
    podium.sdk.models,
    podium.sdk.sessions,
    podium.sdk.evaluations,
    # And of one without `await`.
    podium.sdk.sync,
    podium.sdk.sync_models,
    # What is reckoned of episodes.
    podium.sdk.evaluation,
    podium.sdk.analytics,
    podium.core.trajectory_rows,
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
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__ == module.__name__
    ]


def documented(modules: tuple[ModuleType, ...]) -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """Each module and what the page tells of it: by name, and each thing once."""
    known: set[int] = set()
    for module in modules:
        things = {name: getattr(module, name) for name in names(module)}
        own = {
            name: thing
            for name, thing in things.items()
            if not inspect.ismodule(thing) and id(thing) not in known
        }
        known |= {id(thing) for thing in own.values()}
        yield module, own


def page(modules: tuple[ModuleType, ...]) -> str:
    """The page, in reStructuredText, which is what autodoc speaks."""
    return "\n".join(_page(modules))


def _page(modules: tuple[ModuleType, ...]) -> Iterator[str]:
    yield from ("Python", "======", "")
    yield "What the package exports. Each name is imported when it is first used."
    for module, things in documented(modules):
        yield from ("", module.__name__, "-" * len(module.__name__), "")
        yield from (f".. module:: {module.__name__}", "")
        for name, thing in things.items():
            kind = "class" if inspect.isclass(thing) else "function" if callable(thing) else "data"
            yield f".. auto{kind}:: {module.__name__}.{name}"
            if kind == "class":
                yield "   :members:"
            yield ""


def returned(annotation: str | None) -> str | None:
    """What a synchronous iterator gives, of the annotation of the asynchronous one it wraps."""
    inside = re.fullmatch(r"~?(?:[\w.]*\.)?AsyncGenerator\[(.*), None\]", annotation or "")
    return f"Iterator[{inside[1]}]" if inside else annotation


def _write(app: Sphinx) -> None:
    path = Path(app.srcdir) / "build" / "pages" / "python.rst"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(MODULES))


def _docstring(
    _app: Sphinx, _kind: str, _name: str, _thing: object, _options: object, lines: list[str]
) -> None:
    lines[:] = plain(lines)


def _signature(
    _app: Sphinx,
    _kind: str,
    name: str,
    _thing: object,
    _options: object,
    arguments: str | None,
    annotation: str | None,
) -> tuple[str | None, str | None]:
    plain_calls = name.startswith(f"{podium.sdk.sync.__name__}.")
    return arguments, returned(annotation) if plain_calls else annotation


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry."""
    app.connect("builder-inited", _write)
    # Before napoleon, whose own markup stays.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
