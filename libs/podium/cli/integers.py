"""Whole numbers of the command line, no greater than the contract's fields hold."""

from __future__ import annotations

from typing import Any

import click


class Integer(click.types.IntParamType):
    """One of a field of so many bits, with a sign."""

    def __init__(self, bits: int = 64) -> None:
        self._bits = bits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Fails for one that the field cannot hold."""
        return _fitting(self, super().convert(value, param, ctx), self._bits, param, ctx)


class Count(click.IntRange):
    """As `Integer`, from `least` on."""

    def __init__(self, least: int = 0, bits: int = 64) -> None:
        super().__init__(min=least)
        self._bits = bits

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Fails for one that the field cannot hold."""
        return _fitting(self, super().convert(value, param, ctx), self._bits, param, ctx)


def _fitting(
    kind: click.ParamType[Any],
    number: int,
    bits: int,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> int:
    end = 1 << (bits - 1)
    if not -end <= number < end:
        kind.fail(f"got {number}; allowed are whole numbers up to {end - 1}", param, ctx)
    return number
