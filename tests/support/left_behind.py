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
_OURS = b"PODIUM_"


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
    variables, path, settings = _environment().copy(), list(sys.path), _settings()
    yield
    changed = _settings()
    if _environment() != variables:
        _put_back(variables)
    sys.path[:] = path
    told = [
        f"{name} is {changed.get(name)!r}, was {value!r}"
        for name, value in settings.items()
        if changed.get(name) != value
    ]
    assert not told, "it leaves in its process: " + "; ".join(told)


def _environment() -> dict[bytes, bytes]:
    """What `os.environ` holds; decoding it all for every test took a tenth of the tests' time."""
    return os.environ._data  # type: ignore[attr-defined]


def _put_back(variables: dict[bytes, bytes]) -> None:
    ours = {name for name in _environment().keys() | variables.keys() if name.startswith(_OURS)}
    for name in ours:
        if name in variables:
            os.environb[name] = variables[name]
        else:
            os.environb.pop(name, None)


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
