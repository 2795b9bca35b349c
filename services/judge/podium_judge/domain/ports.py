"""What a judge needs of the world: a model that answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from podium.chat import Reply

from podium_judge.domain.scores import Usage


class JudgeModel(Protocol):
    """A model that answers a conversation with JSON."""

    @property
    def name(self) -> str:
        """As its API calls it; empty until the API has been asked what it serves."""
        ...

    @property
    def address(self) -> str:
        """The API's base URL, without what would be a secret in it."""
        ...

    async def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        usage: Usage,
        seed: int,
    ) -> Reply:
        """One answer, sampled by `seed` where the API takes one; adds its cost to `usage`.

        Raises:
            PromptTooLongError: the conversation does not fit the model's context.
            RequestRefusedError: the API refuses it for good for another reason.
            UnavailableError: it cannot be reached, or not now, after the retries.
            FailedPreconditionError: wrong key, address or model name.
        """
        ...
