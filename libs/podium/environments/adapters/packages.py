"""Packages that an adapter needs and Podium does not."""

from __future__ import annotations

import importlib
from types import ModuleType

from podium.core.errors import FailedPreconditionError


def needed(module: str, requirement: str, environment: str) -> ModuleType:
    """Imports a module of a package that may be missing.

    Raises:
        FailedPreconditionError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise FailedPreconditionError(
            f"environment {environment!r} needs {missing!r}, which is not installed where it runs: "
            f"pip install '{requirement}'",
            reason="PACKAGE_MISSING",
            metadata={"module": missing, "requirement": requirement},
        ) from error
