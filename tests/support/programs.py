"""Programs that tests start: without one, its tests are skipped by its name."""

from __future__ import annotations

import shutil

import pytest


def program(name: str, package: str) -> str:
    """The path of a program; skips the test where it is not installed.

    `sh tools/test_programs.sh`, which `make test` runs first, installs those of the suite.
    """
    found = shutil.which(name)
    if found is None:
        pytest.skip(missing(name, package))
    return found


def missing(name: str, package: str) -> str:
    """Why tests of the program are skipped."""
    return f"`{name}` is not installed: install the package {package}"
