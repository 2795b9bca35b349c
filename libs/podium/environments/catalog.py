"""Environments by name."""

from __future__ import annotations

import importlib

from podium.core.errors import InvalidArgumentError, NotFoundError, Violation
from podium.environments.adapters.tuples import from_tuples, has_tuples
from podium.environments.base import Environment

_BUILTIN = {
    "2048": "podium.environments.game_2048:Game2048",
    "coding": "podium.environments.coding:Coding",
    "email_search": "podium.environments.email_search:EmailSearch",
    "gymnasium": "podium.environments.adapters.gymnasium:Gymnasium",
    "mcp": "podium.environments.adapters.mcp:Mcp",
    "openenv": "podium.environments.adapters.openenv:OpenEnv",
    "search_qa": "podium.environments.search_qa:SearchQa",
    "tic_tac_toe": "podium.environments.tic_tac_toe:TicTacToe",
    "verifiers": "podium.environments.adapters.verifiers:Verifiers",
}


def builtin_names() -> list[str]:
    """Names that job files may use without an address."""
    return sorted(_BUILTIN)


def load(name: str) -> type[Environment]:
    """A built-in environment.

    Raises:
        NotFoundError: none has this name.
    """
    if name not in _BUILTIN:
        raise NotFoundError(
            f"no environment {name!r}; built in are {', '.join(builtin_names())}",
            reason="ENVIRONMENT_NOT_FOUND",
            metadata={"name": name},
        )
    return load_class(_BUILTIN[name])


def load_class(path: str) -> type[Environment]:
    """An environment's class by `package.module:Class`.

    A class that is none, but has `reset` and `step`, is adapted by `from_tuples`.

    Raises:
        InvalidArgumentError: it does not name an Environment.
    """
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise _wrong(path, str(error)) from error
    if isinstance(found, type) and issubclass(found, Environment):
        return found
    if not has_tuples(found):
        raise _wrong(
            path,
            "is neither a subclass of podium.environments.Environment nor a class with reset and"
            " step",
        )
    return from_tuples(found)


def _wrong(path: str, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(violations=[Violation("environment", f"got {path!r}: {why}")])
