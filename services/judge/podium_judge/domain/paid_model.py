"""A judge model that is asked within a budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from podium.chat import Price, Reply
from podium.core.spending import NOTHING, Amount

from podium_judge.domain.budget import Allowance
from podium_judge.domain.ports import JudgeModel
from podium_judge.domain.scores import Usage

# What a chat template puts around messages, and a server before them.
_TEMPLATE_TOKENS = 256


class PaidModel:
    """Asks a model no question that may take more than is left."""

    def __init__(
        self,
        model: JudgeModel,
        allowance: Allowance,
        max_completion_tokens: int,
        price: Price | None = None,
    ) -> None:
        """`max_completion_tokens` is what every question is sent with."""
        self._model = model
        self._allowance = allowance
        self._max_completion_tokens = max_completion_tokens
        self._price = price

    @property
    def name(self) -> str:
        """See `JudgeModel.name`."""
        return self._model.name

    @property
    def address(self) -> str:
        """See `JudgeModel.address`."""
        return self._model.address

    def most(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> Amount:
        """The most that an answer can take."""
        reads = most_tokens({"messages": messages, "schema": schema})
        writes = self._max_completion_tokens
        cost = self._price.of(reads, writes) if self._price else 0.0
        return Amount(reads + writes, cost)

    async def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        usage: Usage,
        seed: int,
    ) -> Reply:
        """See `JudgeModel.ask`.

        Raises:
            GroupSkippedError: too little is left.
        """
        most = self.most(messages, schema) if self._allowance.reserves else NOTHING
        async with self._allowance.question(most, usage) as spent:
            return await self._model.ask(messages, schema, spent, seed)


def most_tokens(body: Mapping[str, Any]) -> int:
    """The most tokens that a tokenizer makes of a request: one a byte, and a chat template's."""
    text = json.dumps(body, ensure_ascii=False).encode(errors="surrogatepass")
    return len(text) + _TEMPLATE_TOKENS
