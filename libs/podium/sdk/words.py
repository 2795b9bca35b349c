"""Words of the asynchronous client, which the synchronous one has too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def words_of(other: Any) -> Callable[[F], F]:
    """Gives a function the docstring of its asynchronous like, a method or a property."""

    def given(own: F) -> F:
        own.__doc__ = other.__doc__
        return own

    return given
