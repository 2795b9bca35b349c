from __future__ import annotations

from collections.abc import Iterator

import pytest
from podium.environments import catalog
from support.guess_environment import Guess
from support.spans import exporter, spans

__all__ = ["exporter", "spans"]


@pytest.fixture(autouse=True)
def guess(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The double is built in, and every episode of it is closed again."""
    monkeypatch.setitem(catalog._BUILTIN, "guess", "support.guess_environment:Guess")
    monkeypatch.setattr(Guess, "open", 0)
    monkeypatch.setattr(Guess, "seeds", [])
    yield
    assert Guess.open == 0
