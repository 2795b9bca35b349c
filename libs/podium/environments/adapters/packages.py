"""Packages that an adapter needs and Podium does not."""

from __future__ import annotations

from types import ModuleType

from podium.core import packages


def needed(module: str, requirement: str, environment: str) -> ModuleType:
    """Imports a module of a package that may be missing.

    Raises:
        FailedPreconditionError: it, or something that it needs, is not installed.
    """
    return packages.needed(module, requirement, f"environment {environment!r}")
