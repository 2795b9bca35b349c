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
    "PODIUM_LEFT is '1'": (lambda: os.environ.update(PODIUM_LEFT="1"), lambda: None),
    "sys.path is": (lambda: sys.path.append("left"), lambda: sys.path.remove("left")),
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
    assert "PODIUM_LEFT" not in os.environ


def test_what_is_put_back_is_not(tmp_path: Path) -> None:
    with unchanged(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_LEFT", "1")
        patch.chdir(tmp_path)
        patch.syspath_prepend(str(tmp_path))
