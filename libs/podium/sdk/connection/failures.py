"""Errors of services that a client called, with the address that its user gave.

Between services addresses are internal, and `rpc_errors` keeps them out; a client's own is its
user's, who must see which one it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from podium.core.errors import DeadlineExceededError, PodiumError, UnavailableError
from podium.kit.rpc import rpc_errors

Failures = Callable[[], AbstractContextManager[None]]
"""Makes a block whose calls raise `podium.core.errors`."""


def failures(service: str, place: str = "") -> Failures:
    """Of a service; `place` is where it is called, ` at 127.0.0.1:50051`, empty for unsaid."""
    return (
        functools.partial(_named, service, place)
        if place
        else functools.partial(rpc_errors, service)
    )


@contextmanager
def _named(service: str, place: str) -> Iterator[None]:
    try:
        with rpc_errors(service):
            yield
    except (UnavailableError, DeadlineExceededError) as error:
        _name(error, service, place)
        raise


def _name(error: PodiumError, service: str, place: str) -> None:
    """Says the place, but of a service that answered, and hands on what another one said."""
    silent = ("cannot be reached", "did not answer", "ended the stream")
    rest = error.message.removeprefix(f"{service} ")
    if error.metadata.get("peer") == service and rest.startswith(silent):
        error.message = f"{service}{place} {rest}"
        error.args = (error.message,)
