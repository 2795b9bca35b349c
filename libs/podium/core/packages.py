"""Packages that one feature needs and Podium does not."""

from __future__ import annotations

import importlib
from types import ModuleType

from podium.core.errors import FailedPreconditionError


def needed(module: str, requirement: str, subject: str) -> ModuleType:
    """Imports a module of a package that may be missing, for `subject`, which needs it.

    Raises:
        FailedPreconditionError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise FailedPreconditionError(
            f"{subject} needs {missing!r}, which is not installed where it runs: "
            f"pip install '{requirement}'",
            reason="PACKAGE_MISSING",
            metadata={"module": missing, "requirement": requirement},
        ) from error
