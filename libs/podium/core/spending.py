"""Amounts of tokens and money, what was spent of them, and what calls in flight may add.

Judges and whoever asks them divide a budget among calls at once so: each reserves the most
that it can take before it begins, and is counted in that place when it ends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

# What rounding leaves of sums of money is no reason to refuse.
_ROUNDING = 1e-9


class Amount(NamedTuple):
    """What is spent, or may be."""

    tokens: int = 0
    """Read and written."""
    cost: float = 0.0

    def plus(self, other: Amount) -> Amount:
        """Both together."""
        return Amount(self.tokens + other.tokens, self.cost + other.cost)

    def less(self, other: Amount) -> Amount:
        """What is in it beyond `other`."""
        return Amount(max(0, self.tokens - other.tokens), max(0.0, self.cost - other.cost))

    def highest(self, other: Amount) -> Amount:
        """The greater of each."""
        return Amount(max(self.tokens, other.tokens), max(self.cost, other.cost))

    @classmethod
    def sum(cls, amounts: Iterable[Amount]) -> Amount:
        """All of them together."""
        amounts = list(amounts)
        tokens = sum(each.tokens for each in amounts)
        return cls(tokens, math.fsum(each.cost for each in amounts))


NOTHING = Amount()


class Account:
    """What was spent, and what questions in flight may add to it."""

    def __init__(self) -> None:
        self.spent = NOTHING
        """By all, as far as is known here."""
        self.reserved: dict[object, Amount] = {}
        """By what is in flight, each under a key of its own."""
        self.asking = 0
        """How many of those wait for an answer, which ends by itself."""
        self._changed = asyncio.Event()

    def give_back(self, key: object, spent: Amount = NOTHING) -> None:
        """Ends what was reserved under `key`, if anything, and counts what it took."""
        self.reserved.pop(key, None)
        self.spent = self.spent.plus(spent)
        self.change()

    def change(self) -> None:
        """Wakes whoever waits for what questions in flight leave."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Returns once something was counted or given back."""
        await self._changed.wait()


@dataclass(frozen=True)
class SpendingBound:
    """The most that may be spent of an account: tokens, or money."""

    whose: str
    """Who spends, for people, such as `the job's judges`."""
    name: str
    """What sets it, for people, such as `(max_job_tokens)`."""
    account: Account
    most: float
    is_money: bool = False
    elsewhere: float = 0.0
    """Spent by others, or told by others."""
    includes_own: bool = False
    """Whether `elsewhere` holds what this account has spent, too."""

    @property
    def spent(self) -> float:
        """By all, as far as is known here."""
        own = self.part(self.account.spent)
        return max(own, self.elsewhere) if self.includes_own else own + self.elsewhere

    @property
    def reserved(self) -> float:
        """By questions in flight."""
        return self.part(Amount.sum(self.account.reserved.values()))

    @property
    def left(self) -> float:
        """What may be reserved now."""
        return self.most - self.spent - self.reserved

    def part(self, amount: Amount) -> float:
        """What of an amount counts."""
        return amount.cost if self.is_money else amount.tokens

    def holds(self, total: float) -> bool:
        """Whether so much may be spent in all."""
        return total <= self.most * (1 + _ROUNDING)

    def has_room(self, more: Amount) -> bool:
        """Whether so much more may be reserved now; nothing always may."""
        part = self.part(more)
        return not part or self.holds(self.spent + self.reserved + part)

    def may_have_room(self, more: Amount) -> bool:
        """Whether it might, were nothing in flight."""
        return self.holds(self.spent + self.part(more))

    def refusal(self, wanted: Amount) -> str:
        """Why so much more may not be spent, for people."""
        verb, unit = ("cost", "") if self.is_money else ("used", " tokens")
        text = f"{self.whose} have {verb} {self.spent:.12g}{unit} of {self.most:.12g} {self.name}"
        part = self.part(wanted)
        if not part:
            return text
        return f"{text}; questions in flight may take {self.reserved:.12g} and the next {part:.12g}"
