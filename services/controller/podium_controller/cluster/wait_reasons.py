"""How a job is told what it waits for in the cluster."""

from __future__ import annotations

import time

from podium.core.errors import PermissionDeniedError, PodiumError

from podium_controller.domain.waits import OnWait, Wait

SILENCE_SECONDS = 600.0
"""Until something is heard; a watch tells at once."""
RETELL_SECONDS = 10.0
"""Between two tellings of the same reason in other words."""


class WaitReporter:
    """Tells new reasons at once, and the same reason in other words now and then."""

    def __init__(self, on_wait: OnWait) -> None:
        self._on_wait = on_wait
        self._last: Wait | None = None
        self._at = 0.0

    async def __call__(self, wait: Wait) -> float:
        """Tells it, if it is time to; returns in how many seconds to ask again."""
        if wait == self._last:
            return SILENCE_SECONDS
        left = self._at + RETELL_SECONDS - time.monotonic()
        if self._last is not None and wait.reason == self._last.reason and left > 0:
            return left
        self._last, self._at = wait, time.monotonic()
        await self._on_wait(wait)
        return SILENCE_SECONDS


def over_quota(error: PodiumError) -> bool:
    """Whether a ResourceQuota refused it."""
    return "exceeded quota" in error.message


def refusal(error: PodiumError) -> Wait:
    """What a job waits for when the cluster refuses for now."""
    if over_quota(error):
        return Wait("TRAINER_OVER_QUOTA", error.message)
    if isinstance(error, PermissionDeniedError):
        return Wait("CLUSTER_FORBIDDEN", error.message)
    return Wait("CLUSTER_UNAVAILABLE", error.message)
