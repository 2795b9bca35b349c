"""What no test may leave in its process: another, in another order, would find it there."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

# Libraries set variables of theirs as they are imported, whoever is the first to import them.
_OURS = "PODIUM_"


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaves its process other than it found it."""
    with unchanged():
        yield


@contextmanager
def unchanged() -> Iterator[None]:
    """The folder and settings of the process are in the end what they were.

    Podium's variables and `sys.path` are put right: commands set them, whose process ends with
    them, and only the first of several tests would be seen to leave them.
    """
    variables, path, settings = _variables(), list(sys.path), _settings()
    yield
    changed = _settings()
    for name in _variables().keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    sys.path[:] = path
    told = [
        f"{name} is {changed.get(name)!r}, was {value!r}"
        for name, value in settings.items()
        if changed.get(name) != value
    ]
    assert not told, "it leaves in its process: " + "; ".join(told)


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(_OURS)}


def _settings() -> dict[str, Any]:
    found: dict[str, Any] = {
        "the working directory": os.getcwd(),
        "the level that logging is disabled below": logging.getLogger().manager.disable,
        "the garbage collection": gc.isenabled(),
        "the sockets' timeout": socket.getdefaulttimeout(),
    }
    # Where the test is the first to import it, there is nothing to compare with.
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "is_grad_enabled"):
        found |= {
            "torch's default type": torch.get_default_dtype(),
            "torch's deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
            "torch's gradients": torch.is_grad_enabled(),
        }
    return found
