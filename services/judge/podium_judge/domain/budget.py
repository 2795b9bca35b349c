"""What may be spent on judges: nothing is asked that could cost more than is left.

Each question reserves the most that it can take before it is asked; what it took is counted
in that place when it ends, however it ends. A group reserves its first questions together, so
that one that was begun is finished.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from podium.core import skip_reasons

from podium_judge.domain.opinion import Opinion
from podium_judge.domain.scores import GroupSkippedError, Usage

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

    @classmethod
    def sum(cls, amounts: Iterable[Amount]) -> Amount:
        """All of them together."""
        amounts = list(amounts)
        tokens = sum(each.tokens for each in amounts)
        return cls(tokens, math.fsum(each.cost for each in amounts))

    @classmethod
    def of(cls, usage: Usage) -> Amount:
        """What usage comes to."""
        return cls(usage.tokens, usage.cost)


NOTHING = Amount()


class Account:
    """What was spent, and what questions in flight may add to it."""

    def __init__(self) -> None:
        self.usage = Usage()
        """What was spent."""
        self.reserved: dict[object, Amount] = {}
        """By groups and questions, each under a key of its own."""
        self.asking = 0
        """Questions that are with a judge."""
        self._changed = asyncio.Event()

    def change(self) -> None:
        """Wakes whoever waits for what questions in flight leave."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Returns once something was counted or given back."""
        await self._changed.wait()


class Spending:
    """What this replica has spent on each job since it started.

    Of the jobs, those whose groups came last are kept.
    """

    def __init__(self, jobs: int = 10_000) -> None:
        self._jobs = jobs
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def of(self, job_id: str) -> Account:
        """What it is so far."""
        found = self._accounts.setdefault(job_id, Account())
        self._accounts.move_to_end(job_id)
        if len(self._accounts) > self._jobs:
            self._accounts.popitem(last=False)
        return found


@dataclass(frozen=True)
class Bound:
    """The most that may be spent of an account: tokens, or money."""

    whose: str
    """Who spends, for people, such as `the job's judges`."""
    name: str
    """What sets it, for people, such as `(max_job_tokens)`."""
    account: Account
    most: float
    is_money: bool = False
    elsewhere: float = 0.0
    """Spent by others, as far as the caller knows."""
    includes_own: bool = False
    """Whether `elsewhere` holds what this account has spent, too."""

    @property
    def spent(self) -> float:
        """By all, as far as this replica can tell."""
        own = self.part(Amount.of(self.account.usage))
        return max(own, self.elsewhere) if self.includes_own else own + self.elsewhere

    @property
    def reserved(self) -> float:
        """By questions in flight."""
        return self.part(Amount.sum(self.account.reserved.values()))

    def part(self, amount: Amount) -> float:
        """What of an amount counts."""
        return amount.cost if self.is_money else amount.tokens

    def holds(self, total: float) -> bool:
        """Whether so much may be spent in all."""
        return total <= self.most * (1 + _ROUNDING)

    def refusal(self, wanted: Amount) -> str:
        """Why so much more may not be spent, for people."""
        verb, unit = ("cost", "") if self.is_money else ("used", " tokens")
        return (
            f"{self.whose} have {verb} {self.spent:.12g}{unit} of {self.most:.12g} {self.name};"
            f" questions in flight may take {self.reserved:.12g} and the next"
            f" {self.part(wanted):.12g}"
        )


@dataclass
class Grant:
    """What one call may spend, of what its caller divides among several."""

    tokens: int | None = None
    """None for no bound."""
    cost: float | None = None
    account: Account = field(default_factory=Account)
    """Of this call alone."""
    wanted: Amount | None = None
    """The least that it would have taken to go on; None where it was enough."""

    def bounds(self) -> list[Bound]:
        """What it comes to."""
        found = []
        if self.tokens is not None:
            found.append(Bound(_CALL, "(the call's grant)", self.account, self.tokens))
        if self.cost is not None:
            found.append(Bound(_CALL, "(the call's grant)", self.account, self.cost, True))
        return found

    def want(self, more: Amount) -> None:
        """Keeps how much it would have taken to go on."""
        account = self.account
        self.wanted = Amount.sum([Amount.of(account.usage), *account.reserved.values(), more])


_CALL = "the judges of this call"


class Allowance:
    """What one scorer may spend on a group."""

    def __init__(
        self,
        bounds: Sequence[Bound] = (),
        account: Account | None = None,
        grant: Grant | None = None,
        *,
        reserves: bool = False,
    ) -> None:
        """Without anything: of a job without bounds, whose spending nobody else counts.

        Args:
            account: the job's, which is told of what is spent.
            reserves: whether others of that account have bounds.
        """
        self._grant = grant or Grant()
        self._bounds = (*bounds, *self._grant.bounds())
        self._accounts = (*([account] if account else []), self._grant.account)
        self._reserves = reserves or bool(self._bounds)

    @property
    def reserves(self) -> bool:
        """Whether it matters what questions can take."""
        return self._reserves

    @asynccontextmanager
    async def group(self, most: Amount) -> AsyncIterator[None]:
        """Judges are asked about a group inside the block; their first questions take `most`.

        Where too little is left until what is in flight has ended, it waits for that.

        Raises:
            GroupSkippedError: too little is left.
        """
        if self._reserves:
            await self._reserve(most, is_begun=False)
        try:
            yield
        finally:
            self._give_back(self)

    @asynccontextmanager
    async def question(self, most: Amount) -> AsyncIterator[Usage]:
        """One question is asked inside the block, which adds what it took to what it is given.

        Args:
            most: that it can take, of which its group has reserved some, or all.

        Raises:
            GroupSkippedError: too little is left.
        """
        spent = Usage()
        key = object()
        if self._reserves:
            await self._draw(key, most)
        for account in self._accounts:
            account.asking += 1
        try:
            yield spent
        finally:
            for account in self._accounts:
                account.asking -= 1
                account.usage.add(spent)
            self._give_back(key)

    async def _draw(self, key: object, most: Amount) -> None:
        """Moves what a question can take from what the group has reserved, and more if need be."""
        # Another question of the group may draw it in between.
        while (short := most.less(self._held())) != NOTHING:
            await self._reserve(short, is_begun=True)
        rest = self._held().less(most)
        for account in self._accounts:
            account.reserved[key] = most
        self._hold(rest)

    def _held(self) -> Amount:
        return self._grant.account.reserved.get(self, NOTHING)

    async def _reserve(self, more: Amount, *, is_begun: bool) -> None:
        while more != NOTHING and (full := self._full(more)):
            account = full.account
            never = not full.holds(full.spent + full.part(more))
            # A group that was begun holds what others wait for: it waits for answers alone.
            ends = account.asking if is_begun else account.reserved
            if never or not ends:
                if account is self._grant.account:
                    self._grant.want(more)
                raise GroupSkippedError(skip_reasons.JUDGE_BUDGET, full.refusal(more))
            await account.wait()
        self._hold(self._held().plus(more))

    def _hold(self, amount: Amount) -> None:
        for account in self._accounts:
            account.reserved[self] = amount
            if amount == NOTHING:
                del account.reserved[self]

    def _full(self, more: Amount) -> Bound | None:
        """The first bound that has no room for it now."""
        for bound in self._bounds:
            part = bound.part(more)
            if part and not bound.holds(bound.spent + bound.reserved + part):
                return bound
        return None

    def _give_back(self, key: object) -> None:
        for account in self._accounts:
            account.reserved.pop(key, None)
            account.change()


def count_opinions(opinions: Iterable[Opinion], group: Usage) -> None:
    """Adds what they cost to what their group has cost."""
    for opinion in opinions:
        group.add(opinion.usage)
        group.cached += int(opinion.cached)
