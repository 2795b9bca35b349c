"""Whose request this is: the bearer token that goes on to the services, and no other."""

from __future__ import annotations

from contextvars import ContextVar

_TOKEN: ContextVar[str] = ContextVar("podium_console_token", default="")


def speak_as(token: str) -> None:
    """Calls of this task, and of those that it starts, present this token; empty for none."""
    _TOKEN.set(token)


def token() -> str:
    """The token of whoever asks."""
    return _TOKEN.get()
