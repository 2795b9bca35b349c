"""Cases that `make test` leaves out: further ones of what another case holds, and long ones."""

from __future__ import annotations

from typing import Any

import pytest


def full(*values: Any) -> Any:
    """Of `pytest.mark.parametrize` or a fixture's `params`, a case whose like is run: not by CI."""
    return pytest.param(*values, marks=pytest.mark.full)


def long(*values: Any) -> Any:
    """One that takes long and has a proof of its own: CI runs it."""
    return pytest.param(*values, marks=pytest.mark.long)
