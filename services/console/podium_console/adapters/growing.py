"""What only grows, a job's steps and events: read once for all who look, and then its new rows.

Nobody sees by it what the controller would not tell them: each look asks the controller, with the
token of whoever looks, for the last page that is known and what came after it. That page shows too
whether the rows before it are still this job's: an installation may have begun anew.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from podium.core.errors import InvalidArgumentError

PAGE = 50
"""Rows of a page: so many are read again at most."""
_LISTING_BYTES = 4096
"""Of a listing, besides its rows."""

Row = TypeVar("Row")
Taken = TypeVar("Taken", contravariant=True)


class Kept(Protocol[Taken]):
    """What the rows are put into."""

    @property
    def weight(self) -> int:
        """Bytes that it takes, about."""

    def extend(self, rows: Iterable[Taken], /) -> None:
        """Takes the rows that follow."""


K = TypeVar("K", bound="Kept[Any]")

Ask: TypeAlias = Callable[[str], Awaitable[tuple[Sequence[Row], str]]]
"""A page by its token, of `PAGE` rows at most, and the next page's token."""


class _Listing(Generic[K]):
    def __init__(self, kept: K) -> None:
        self.kept = kept
        self.token = ""
        """Of the last page."""
        self.last: list[Hashable] = []
        """What tells its rows from others."""
        # Who comes meanwhile asks for no row that is being read for another.
        self.lock = asyncio.Lock()

    @property
    def weight(self) -> int:
        return _LISTING_BYTES + self.kept.weight


class Growing(Generic[Row, K]):
    """Listings by their names; those that nobody has looked at for longest are forgotten first."""

    def __init__(
        self, make: Callable[[], K], mark: Callable[[Row], Hashable], most_bytes: int
    ) -> None:
        """`make` gives what a listing's rows are put into; `mark` tells a row from others."""
        self._make = make
        self._mark = mark
        self._most_bytes = most_bytes
        self._listings: OrderedDict[str, _Listing[K]] = OrderedDict()

    async def look(self, name: str, ask: Ask[Row]) -> K:
        """All rows of a listing as of now; what `ask` raises is raised."""
        listing = self._listings.pop(name, None) or _Listing(self._make())
        # The latest at the end. Strangers' names, of which `ask` knows nothing, do not stay.
        self._listings[name] = listing
        try:
            async with listing.lock:
                await self._read(listing, ask)
                return listing.kept
        finally:
            if not listing.last and self._listings.get(name) is listing:
                del self._listings[name]
            self._forget()

    async def _read(self, listing: _Listing[K], ask: Ask[Row]) -> None:
        rows, following = await self._tail(listing, ask)
        known = len(listing.last)
        if [self._mark(row) for row in rows[:known]] != listing.last:
            listing.kept, listing.token, listing.last, known = self._make(), "", [], 0
            rows, following = await ask("")
        listing.kept.extend(rows[known:])
        listing.last = [self._mark(row) for row in rows]
        while following:
            rows, token = await ask(following)
            # No await in between: whoever is cancelled leaves whole pages.
            listing.kept.extend(rows)
            listing.last, listing.token = [self._mark(row) for row in rows], following
            following = token

    async def _tail(self, listing: _Listing[K], ask: Ask[Row]) -> tuple[Sequence[Row], str]:
        try:
            return await ask(listing.token)
        except InvalidArgumentError:
            if not listing.token:
                raise
            # A controller of another version may make other tokens.
            return (), ""

    def _forget(self) -> None:
        weight = sum(listing.weight for listing in self._listings.values())
        while weight > self._most_bytes:
            _, listing = self._listings.popitem(last=False)
            weight -= listing.weight
