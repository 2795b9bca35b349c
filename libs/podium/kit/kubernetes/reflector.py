"""Keeps an eye on all objects of a selection: one list, then changes as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing

from podium.core.backoff import Backoff
from podium.core.errors import OutOfRangeError, PodiumError, UnavailableError
from podium.kit.kubernetes.api import ClusterApi, Selection
from podium.kit.kubernetes.object_template import Manifest

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 15.0


class Reflector:
    """Tells of every change, through losses of the API server, until it is cancelled."""

    def __init__(
        self,
        api: ClusterApi,
        selection: Selection,
        on_all: Callable[[list[Manifest]], None],
        on_change: Callable[[str, Manifest], None],
    ) -> None:
        """
        Args:
            on_all: told all objects there are, at first and whenever changes
                were missed.
            on_change: told ADDED, MODIFIED or DELETED, and the object.
        """
        self._api = api
        self._selection = selection
        self._on_all = on_all
        self._on_change = on_change
        self._version = ""
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.name = f"watch-{selection.resource.plural}"
        """Of its task."""
        self.error = ""
        """What the cluster said last, if that was no."""
        self.listed = asyncio.Event()
        """Set when all objects were told once."""

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                if not self._version:
                    items, self._version = await self._api.list_all(self._selection)
                    self._on_all(items)
                    self.listed.set()
                    self.error = ""
                    self._backoff.reset()
                await self._watch()
            except OutOfRangeError:
                # What happened in between is told no more.
                self._version = ""
            except PodiumError as error:
                self.error = error.message
                logger.warning(
                    "a watch of the cluster broke off; it goes on",
                    extra={"resource": self._selection.resource.plural, "error": error.message},
                )
            else:
                continue
            await asyncio.sleep(self._backoff.next())

    async def _watch(self) -> None:
        async with aclosing(self._api.watch(self._selection, self._version)) as events:
            async for event in events:
                self._backoff.reset()
                if event["type"] != "BOOKMARK":
                    self._on_change(event["type"], event["object"])
                self._version = event["object"]["metadata"]["resourceVersion"]


async def all_listed(reflectors: Sequence[Reflector], seconds: float) -> None:
    """Returns when it is known what there is.

    Raises:
        UnavailableError: not so soon; with what the cluster says.
    """
    try:
        async with asyncio.timeout(seconds):
            for reflector in reflectors:
                await reflector.listed.wait()
    except TimeoutError:
        said = next((each.error for each in reflectors if each.error), "")
        raise UnavailableError(
            said or "the cluster's API server does not answer", reason="CLUSTER_UNAVAILABLE"
        ) from None
