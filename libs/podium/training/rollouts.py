"""The rollout that code runs in: its key, and whose calls were made under it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from podium.core.rollout_keys import new_key, signed
from podium.inference.v1 import inference_service_pb2 as inference_pb

NO_KEY = "podium"
"""The API key of calls that belong to no rollout where none is asked for; nothing is captured."""


class CalledModel(Protocol):
    """A model that code may call under a rollout's key."""

    name: str
    api_token: str

    async def take(self, key: str) -> list[inference_pb.CapturedCall]:
        """The calls under a rollout's key; only those that have ended."""
        ...


@dataclass
class Rollout:
    """One attempt of an agent; every call under its key belongs to it."""

    key: str = field(default_factory=new_key)
    models: dict[str, CalledModel] = field(default_factory=dict)
    """Those that were called, or may have been, by name."""


_current: ContextVar[Rollout | None] = ContextVar("podium_rollout", default=None)


def current() -> Rollout | None:
    """The rollout in whose context this runs; None outside of one."""
    return _current.get()


@contextmanager
def entered(rollout: Rollout) -> Iterator[Rollout]:
    """Code in the block, and tasks and threads that take their context from it, are the rollout."""
    token = _current.set(rollout)
    try:
        yield rollout
    finally:
        _current.reset(token)


def begin_again() -> None:
    """Gives the rollout that this runs in a new key; what was called before is not its any more."""
    rollout = current()
    if rollout is not None:
        rollout.key = new_key()
        rollout.models.clear()


def key_for(model: CalledModel) -> str:
    """The API key for a call of the model that is made here and now."""
    rollout = current()
    if rollout is None:
        return model.api_token or NO_KEY
    rollout.models[model.name] = model
    return signed(rollout.key, model.api_token)
