"""Cases that only `make test-full` runs: further ones of what another case holds."""

from __future__ import annotations

from typing import Any

import pytest


def full(*values: Any) -> Any:
    """Such a case of `pytest.mark.parametrize`, or of a fixture's `params`."""
    return pytest.param(*values, marks=pytest.mark.full)
