"""ART's `retry`: a rollout that is tried again, and whose failed tries train nobody."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from podium.training import rollouts

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


def retry(
    max_attempts: int = 3,
    delay: float = 0.25,
    backoff_factor: float = 2.0,
    exceptions: tuple[type[Exception], ...] = (Exception,),
    on_retry: Callable[[Exception, int], None] | None = None,
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """Runs a coroutine function again when it raises.

    In a rollout each try has a key of its own, so what the model was asked in one that
    failed is no part of the trajectory.

    Args:
        max_attempts: tries in all; the last one's exception is raised.
        delay: seconds before the second try, and `backoff_factor` times more before each
            further one.
        exceptions: what is tried again; all else is raised at once.
        on_retry: is told the exception and the number of the try, from 1, in place of a
            line in the log.

    Raises:
        ValueError: `max_attempts` is below 1.
        TypeError: what is decorated is not a coroutine function.
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts}; it must be 1 or more")

    def decorated(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        name = getattr(function, "__name__", repr(function))
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} is not a coroutine function (async def)")

        @functools.wraps(function)
        async def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            wait = delay
            for number in range(1, max_attempts):
                try:
                    return await function(*args, **kwargs)
                except exceptions as error:
                    if on_retry is None:
                        logger.warning("try %d of %s failed: %r", number, name, error)
                    else:
                        on_retry(error, number)
                await asyncio.sleep(wait)
                wait *= backoff_factor
                rollouts.begin_again()
            return await function(*args, **kwargs)

        return tried

    return decorated
