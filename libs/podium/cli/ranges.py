"""`3`, `3:5`, `3:` and `:5` on the command line; both ends belong to it."""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class Range(NamedTuple):
    """Whole numbers from `first` to `last`, both included; None is open."""

    first: int | None
    last: int | None

    def __contains__(self, number: object) -> bool:
        return (
            isinstance(number, int)
            and (self.first is None or number >= self.first)
            and (self.last is None or number <= self.last)
        )

    def of(self, count: int) -> Range:
        """With numbers below 0 counted from the end of 1 to `count`, as in `-2:`."""
        return Range(*(end if end is None or end >= 0 else max(count + 1 + end, 0) for end in self))


class RangeType(click.ParamType[Range]):
    """Reads a range; `negative` ones count from the end."""

    name = "a:b"

    def __init__(self, *, negative: bool = False) -> None:
        self._negative = negative

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Range:
        if isinstance(value, Range):
            return value
        first, colon, last = str(value).partition(":")
        try:
            ends = [int(text) if text.strip() else None for text in (first, last)]
        except ValueError:
            ends = []
        allowed = "allowed is a number, or a:b, a: or :b"
        if not ends or ends == [None, None]:
            self.fail(f"got {value!r}; {allowed}", param, ctx)
        made = Range(*ends) if colon else Range(ends[0], ends[0])
        numbers = [end for end in made if end is not None]
        if not self._negative and min(numbers) < 0:
            self.fail(f"got {value!r}; allowed are numbers from 0", param, ctx)
        if len(numbers) == 2 and numbers[0] > numbers[1] and numbers[0] * numbers[1] >= 0:
            self.fail(f"got {value!r}, which ends before it begins", param, ctx)
        return made
