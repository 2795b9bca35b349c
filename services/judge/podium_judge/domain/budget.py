"""What may be spent on judges: nothing is asked that could cost more than is left.

Each question reserves the most that it can take before it is asked; what it took is counted
in that place when it ends, however it ends. A group reserves its first questions together, so
that one that was begun is finished.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from podium.core import skip_reasons
from podium.core.spending import NOTHING, Account, Amount, SpendingBound

from podium_judge.domain.opinion import Opinion
from podium_judge.domain.scores import GroupSkippedError, Usage


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

    def bounds(self) -> list[SpendingBound]:
        """What it comes to."""
        found = []
        if self.tokens is not None:
            found.append(SpendingBound(_CALL, "(the call's grant)", self.account, self.tokens))
        if self.cost is not None:
            found.append(SpendingBound(_CALL, "(the call's grant)", self.account, self.cost, True))
        return found

    def want(self, more: Amount) -> None:
        """Keeps how much it would have taken to go on."""
        self.wanted = Amount.sum([self.account.spent, *self.account.reserved.values(), more])


_CALL = "the judges of this call"


class Allowance:
    """What one scorer may spend on a group."""

    def __init__(
        self,
        bounds: Sequence[SpendingBound] = (),
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
        self._granted = self._grant.bounds()
        self._bounds = (*bounds, *self._granted)
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
            for account in self._accounts:
                account.give_back(self)

    @asynccontextmanager
    async def question(self, most: Amount, usage: Usage) -> AsyncIterator[Usage]:
        """One question is asked inside the block, which adds what it took to what it is given.

        Args:
            most: that it can take, of which its group has reserved some, or all.
            usage: is added what it took, however it ends.

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
            usage.add(spent)
            for account in self._accounts:
                account.asking -= 1
                account.give_back(key, Amount(spent.tokens, spent.cost))

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
            # A group that was begun holds what others wait for: it waits for answers alone.
            ends = account.asking if is_begun else account.reserved
            if not ends or not full.may_have_room(more):
                if any(full is bound for bound in self._granted):
                    self._grant.want(more)
                raise GroupSkippedError(skip_reasons.JUDGE_BUDGET, full.refusal(more))
            await account.wait()
        self._hold(self._held().plus(more))

    def _hold(self, amount: Amount) -> None:
        for account in self._accounts:
            account.reserved[self] = amount
            if amount == NOTHING:
                del account.reserved[self]

    def _full(self, more: Amount) -> SpendingBound | None:
        """The first bound that has no room for it now."""
        return next((bound for bound in self._bounds if not bound.has_room(more)), None)


def count_opinions(opinions: Iterable[Opinion], group: Usage) -> None:
    """Adds what they cost to what their group has cost."""
    for opinion in opinions:
        group.add(opinion.usage)
        group.cached += int(opinion.cached)
