"""The chart's renderer, which the golden files are made with, for its tests."""

from __future__ import annotations

import copy
import functools
from typing import Any

import kubernetes_validate.utils
import pytest
from chart_golden import case, case_names

_rendered = functools.cache(case)
# It reads a megabyte of JSON for each object otherwise.
kubernetes_validate.utils.schema_contents = functools.cache(
    kubernetes_validate.utils.schema_contents
)


@pytest.fixture(params=case_names())
def objects(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What the chart makes of one case of ci/."""
    return copy.deepcopy(_rendered(request.param))
