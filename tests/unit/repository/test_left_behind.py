"""What a test leaves in its process is told."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.left_behind import unchanged

CHANGES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "the level that logging is disabled below is 5": (
        lambda: logging.disable(5),
        lambda: logging.disable(logging.NOTSET),
    ),
    "torch's default type is torch.float64, was torch.float32": (
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
    ),
}


@pytest.mark.parametrize("told", CHANGES)
def test_what_is_left_is_told(told: str) -> None:
    change, back = CHANGES[told]
    found = None
    try:
        with unchanged():
            change()
    except AssertionError as error:
        found = str(error)
    finally:
        back()
    assert found is not None
    assert told in found


def test_what_a_command_leaves_is_put_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CHANGED", "ä")
    monkeypatch.setenv("PODIUM_GONE", "here")
    monkeypatch.setenv("OF_A_LIBRARY", "old")
    with unchanged():
        os.environ["PODIUM_LEFT"] = "1"
        os.environ["PODIUM_CHANGED"] = "2"
        del os.environ["PODIUM_GONE"]
        os.environ["OF_A_LIBRARY"] = "new"
        sys.path.insert(0, "left")
    assert "PODIUM_LEFT" not in os.environ
    assert os.environ["PODIUM_CHANGED"] == "ä"
    assert os.environ["PODIUM_GONE"] == "here"
    assert os.environ["OF_A_LIBRARY"] == "new"
    assert "left" not in sys.path


def test_what_is_put_back_is_not_told(tmp_path: Path) -> None:
    with unchanged(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
