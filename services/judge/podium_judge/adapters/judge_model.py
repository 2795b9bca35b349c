"""The model that a judge asks, and what its metrics are told."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
from podium.chat import PromptTooLongError, Reply, RequestRefusedError, StructuredChat
from podium.core.errors import FailedPreconditionError, UnavailableError

from podium_judge.domain import metrics
from podium_judge.domain.judge_config import CallLimits, JudgeConfig
from podium_judge.domain.scores import Usage

log = logging.getLogger(__name__)

# A job may name any address; it is not to learn what listens there, and what not.
WITHHELD = (
    "the judge at the job's own base_url gave no answer that can be used: check its address,"
    " its key and the model's name; the judge service's log says more"
)


# An account's credit, and a model.
_MAY_COME = frozenset({"402", "404"})


class OpenAIJudge:
    """A judge model behind an OpenAI-compatible API."""

    def __init__(self, client: httpx.AsyncClient, config: JudgeConfig, limits: CallLimits) -> None:
        """Asks nothing yet."""
        self._trusted = config.trusted
        self._address = shown(config.endpoint.base_url)
        self._chat = StructuredChat(
            client,
            config.endpoint,
            config.sampling,
            limits,
            config.price,
            role="judge",
            observer=CallMetrics(config.label),
        )

    @property
    def name(self) -> str:
        """See `JudgeModel.name`."""
        return self._chat.name

    @property
    def address(self) -> str:
        """See `JudgeModel.address`."""
        return self._address

    async def merges(self) -> bool:
        """See `StructuredChat.merges`."""
        return await self._chat.merges()

    async def try_key(self) -> str:
        """Why its API never answers with this key, or at this address; empty where it may.

        Of an account without credit or a model that is not there nothing is said: both may come.
        """
        return await refusal_of(self._chat.try_key(), WITHHELD if not self._trusted else "")

    async def ask(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Mapping[str, Any],
        usage: Usage,
        seed: int,
    ) -> Reply:
        """See `JudgeModel.ask`."""
        try:
            return await self._chat.ask(messages, schema, usage, "scores", seed)
        except (UnavailableError, FailedPreconditionError) as error:
            if self._trusted:
                raise
            log.info("a judge that a job names: %s", error.message)
            raise type(error)(WITHHELD, reason=error.reason) from error
        except RequestRefusedError as error:
            if self._trusted or isinstance(error, PromptTooLongError):
                raise
            log.info("a judge that a job names: %s", error)
            raise RequestRefusedError(WITHHELD) from error


async def refusal_of(asking: Awaitable[object], withheld: str = "") -> str:
    """Why who is asked never answers with this key, or at this address; empty where it may.

    Args:
        withheld: what is told in place of what was answered; empty for that itself.
    """
    try:
        await asking
    except FailedPreconditionError as error:
        if error.metadata.get("status") not in _MAY_COME:
            return withheld or error.message
    except UnavailableError:
        pass
    return ""


def shown(base_url: str) -> str:
    """An address as jobs may read it: an operator's may hold a user, a key, or a query."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class CallMetrics:
    """Counts the calls of one model."""

    def __init__(self, label: str) -> None:
        self._label = label

    def called(self, outcome: str) -> None:
        """See `podium.chat.Observer`."""
        metrics.MODEL_CALLS.labels(outcome=outcome).inc()

    def spent(self, prompt_tokens: int, completion_tokens: int, cost: float | None) -> None:
        """See `podium.chat.Observer`."""
        metrics.TOKENS.labels(kind="prompt", model=self._label).inc(prompt_tokens)
        metrics.TOKENS.labels(kind="completion", model=self._label).inc(completion_tokens)
        if cost is not None:
            metrics.COST.labels(model=self._label).inc(cost)
