"""One judge: asks its model, has bad answers repaired and long prompts shortened."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from typing import Any, Protocol

from podium.chat import PromptTooLongError, Reply, RequestRefusedError
from podium.core import skip_reasons
from podium.core.errors import FailedPreconditionError, PodiumError, UnavailableError
from podium.core.spending import NOTHING, Amount

from podium_judge.domain import metrics, verdict
from podium_judge.domain.cache import OpinionCache
from podium_judge.domain.judge_config import JudgeConfig
from podium_judge.domain.opinion import Failure, FailureKind, Opinion, Record
from podium_judge.domain.paid_model import PaidModel
from podium_judge.domain.question import JudgePrompt, JudgeQuestion
from podium_judge.domain.scores import GroupSkippedError, Score, Usage
from podium_judge.domain.trimming import tokens_of

log = logging.getLogger(__name__)

_SHORTENINGS = 4
_MAX_ECHO_CHARS = 8000
# No credit, no leave (a quota too), no such model.
_ABSENT_STATUS = frozenset({"402", "403", "404"})


class Judge(Protocol):
    """Has an opinion on a question."""

    async def opinion(self, question: JudgeQuestion, seed: str) -> Opinion:
        """Scores, or why there are none; `seed` fixes the order of attempts."""
        ...

    def most(self, question: JudgeQuestion, seed: str) -> Amount:
        """The most that its first answer can take; nothing where it is known."""
        ...


@dataclass
class _Trail:
    """How far a question has come: the prompt that was asked last, and its last answer."""

    prompt: JudgePrompt
    order_seed: str
    reply: Reply | None = None

    def record(self, address: str) -> Record:
        digest = self.prompt.digest()
        if self.reply is None:
            return Record(address, self.order_seed, digest)
        return Record(address, self.order_seed, digest, self.reply.finish_reason, self.reply.asked)

    def sampling_seed(self) -> int:
        """Another for each prompt and each judge of a panel: 31 bits, which every API takes."""
        drawn = hashlib.sha256(f"{self.prompt.digest()}/{self.order_seed}".encode()).digest()
        return int.from_bytes(drawn[:4], "big") >> 1


class ModelJudge:
    """A judge that asks a model."""

    def __init__(self, model: PaidModel, has_price: bool = False, seconds: float = 300.0) -> None:
        """`seconds` bounds one question, its retries and repairs included."""
        self._model = model
        self._has_price = has_price
        self._seconds = seconds

    def most(self, question: JudgeQuestion, seed: str) -> Amount:
        """See `Judge.most`."""
        return self._model.most(*_opening(question.prompt(seed)))

    async def opinion(self, question: JudgeQuestion, seed: str) -> Opinion:
        """See `Judge.opinion`."""
        usage = Usage()
        trail = _Trail(question.prompt(seed), seed)
        scores: list[Score] = []
        failure = None
        try:
            async with asyncio.timeout(self._seconds):
                scores = await self._fitting(question, trail, usage)
        except verdict.VerdictError as error:
            failure = Failure(FailureKind.USELESS, f"the judge's answer: {error}")
        except RequestRefusedError as error:
            failure = Failure(FailureKind.REFUSED, str(error))
        except FailedPreconditionError as error:
            failure = Failure(FailureKind.MISCONFIGURED, error.message, absence(error))
        except UnavailableError as error:
            failure = Failure(FailureKind.UNAVAILABLE, error.message, error)
        except GroupSkippedError as refused:
            failure = Failure(FailureKind.OVER_BUDGET, str(refused))
        except TimeoutError:
            late = UnavailableError(
                f"the judge model had no answer within {self._seconds:g} seconds",
                reason=skip_reasons.NO_JUDGE_ANSWERS,
            )
            failure = Failure(FailureKind.UNAVAILABLE, late.message, late)
        return Opinion(
            self._model.name,
            tuple(scores),
            trail.prompt.places,
            failure,
            usage,
            self._has_price,
            bytes_left_out=trail.prompt.bytes_left_out,
            record=trail.record(self._model.address),
        )

    async def _fitting(self, question: JudgeQuestion, trail: _Trail, usage: Usage) -> list[Score]:
        """Asks; halves the prompt as long as the model's context is too short for it."""
        for _ in range(_SHORTENINGS):
            try:
                return await self._repaired(trail, usage)
            except PromptTooLongError:
                log.warning("the prompt is too long for the judge's context")
                prompt = trail.prompt
                half = tokens_of(prompt.system + prompt.user) // 2
                shorter = question.prompt(trail.order_seed, half)
                if len(shorter.user) >= len(prompt.user):
                    raise
                trail.prompt = shorter
        return await self._repaired(trail, usage)

    async def _repaired(self, trail: _Trail, usage: Usage) -> list[Score]:
        """Asks, and once more with the complaint when the answer cannot be used."""
        prompt, seed = trail.prompt, trail.sampling_seed()
        if prompt.bytes_left_out:
            metrics.TRIMMED.inc()
        messages, schema = _opening(prompt)
        trail.reply = reply = await self._model.ask(messages, schema, usage, seed)
        try:
            return _read(reply, prompt)
        except verdict.VerdictError as error:
            complaint = str(error)
        messages += [
            {"role": "assistant", "content": reply.text[:_MAX_ECHO_CHARS]},
            {
                "role": "user",
                "content": f"That answer cannot be used: {complaint}. Answer again with the "
                f"whole JSON object: one entry for each {prompt.subject.title}, each score from "
                "0 to 1.",
            },
        ]
        trail.reply = await self._model.ask(messages, schema, usage, seed)
        return _read(trail.reply, prompt)


def _opening(prompt: JudgePrompt) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """The messages that ask, and the schema of the answer."""
    messages = [
        {"role": "system", "content": prompt.system},
        {"role": "user", "content": prompt.user},
    ]
    return messages, verdict.schema(prompt.labels, prompt.subject)


def absence(error: FailedPreconditionError) -> PodiumError:
    """An account or a model may come back, so who refuses for lack of them is away."""
    if error.metadata.get("status") not in _ABSENT_STATUS:
        return error
    return UnavailableError(
        error.message, reason=skip_reasons.NO_JUDGE_ANSWERS, metadata=error.metadata
    )


def _read(reply: Reply, prompt: JudgePrompt) -> list[Score]:
    try:
        return verdict.parse(reply.text, prompt.labels, prompt.subject)
    except verdict.VerdictError as error:
        metrics.PARSE_FAILURES.inc()
        complaint = f"{error}{'; it was cut off' if reply.cut_off else ''}"
        log.warning("the judge's answer is useless", extra={"problem": complaint})
        raise verdict.VerdictError(complaint) from None


class LimitedJudge:
    """A judge of whom only so many are asked at once; the wait is no part of its time."""

    def __init__(self, judge: Judge, at_once: asyncio.Semaphore) -> None:
        self._judge = judge
        self._at_once = at_once

    async def opinion(self, question: JudgeQuestion, seed: str) -> Opinion:
        """See `Judge.opinion`."""
        async with self._at_once:
            return await self._judge.opinion(question, seed)

    def most(self, question: JudgeQuestion, seed: str) -> Amount:
        """See `Judge.most`."""
        return self._judge.most(question, seed)


class CachedJudge:
    """A judge that is asked the same question once."""

    def __init__(
        self, judge: Judge, config: JudgeConfig, cache: OpinionCache, seat: int = 0
    ) -> None:
        """`seat` tells judges of one panel apart that are otherwise the same."""
        self._judge = judge
        endpoint, sampling = config.endpoint, config.sampling
        self._identity = repr((endpoint.base_url, endpoint.model, sampling, seat))
        self._cache = cache

    async def opinion(self, question: JudgeQuestion, seed: str) -> Opinion:
        """See `Judge.opinion`; a known opinion may be on another order of attempts."""
        return await self._cache.get(
            self._key(question), lambda: self._judge.opinion(question, seed)
        )

    def most(self, question: JudgeQuestion, seed: str) -> Amount:
        """See `Judge.most`."""
        if self._cache.knows(self._key(question)):
            return NOTHING
        return self._judge.most(question, seed)

    def _key(self, question: JudgeQuestion) -> str:
        content = f"{self._identity}\n{question.digest()}"
        return hashlib.sha256(content.encode()).hexdigest()
