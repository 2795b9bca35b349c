"""What the wheel holds, as its build backend says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def shipped() -> set[str]:
    return {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}


def test_type_checkers_of_programs_that_use_podium_are_told_that_it_is_typed(
    shipped: set[str],
) -> None:
    """PEP 561: without the marker they take every name of it for Any."""
    assert "podium/py.typed" in shipped
    assert "podium/types/v1/spec_pb2.pyi" in shipped


def test_the_library_and_all_services_are_shipped_and_no_test_is(shipped: set[str]) -> None:
    packages = {path.partition("/")[0] for path in shipped}
    services = {f"podium_{path.name}" for path in (ROOT / "services").iterdir() if path.is_dir()}
    assert packages == {"podium", *services}
