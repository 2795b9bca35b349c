"""Scorers over HTTP: reward models that vLLM serves, and anybody's own code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx
from podium.chat import HttpApi, RequestRefusedError
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.core.outside import plain_of, whole_numbers
from podium.core.skip_reasons import NO_JUDGE_ANSWERS
from podium.core.spending import Amount
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_judge.adapters import http_protocols
from podium_judge.adapters.http_protocols import NoAnswerError
from podium_judge.adapters.judge_model import CallMetrics, refusal_of, shown
from podium_judge.domain.judge_config import CallLimits, JudgeConfig
from podium_judge.domain.paid_model import most_tokens
from podium_judge.domain.panel import mean
from podium_judge.domain.scores import Score, Unscored, Usage
from podium_judge.domain.transcript import Attempt, attempt_of, histories_of
from podium_judge.domain.verdict import VerdictError

log = logging.getLogger(__name__)

# As of judges: a job may name any address, and is not to learn what listens there.
_WITHHELD = (
    "the scorer at the job's own base_url gave no answer that can be used: check its address and"
    " its key; the judge service's log says more"
)
_CLASSIFY = "/classify"
_PATHS: Mapping[int, str] = {
    spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY: _CLASSIFY,
    spec_pb2.HTTP_SCORER_PROTOCOL_POOLING: "/pooling",
}
_SILENT = Unscored("http: the attempt has no messages")


@dataclass(frozen=True)
class QuestionBounds:
    """How many may ask at once, and how long one of them may take."""

    free: asyncio.Semaphore
    seconds: float
    """For one request and its retries; the wait before it is no part of it."""


class HttpSource:
    """Asks what is served at an address by one of the protocols."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        config: JudgeConfig,
        limits: CallLimits,
        spec: spec_pb2.HttpScorerSpec,
        bounds: QuestionBounds,
    ) -> None:
        """Asks nothing yet."""
        self._endpoint = config.endpoint
        self._trusted = config.trusted
        self._spec = spec
        self._bounds = bounds
        self._metrics = CallMetrics(config.label)
        self._api = HttpApi(
            client, config.endpoint, limits, role="judge", observer=self._metrics, named="scorer"
        )
        self._extra = whole_numbers(plain_of(spec.extra_body))
        self._path = _PATHS.get(spec.protocol, "/score")
        self._reads_conversations = spec.protocol in _PATHS
        self._call_price = spec.call_price if spec.HasField("call_price") else None

    @property
    def name(self) -> str:
        """See `ScoreSource.name`."""
        return self._endpoint.model or self._endpoint.base_url

    @property
    def address(self) -> str:
        """See `ScoreSource.address`."""
        return shown(self._endpoint.base_url)

    @property
    def is_priced(self) -> bool:
        """See `ScoreSource.is_priced`."""
        return self._call_price is not None

    def most(self, trajectories: Sequence[trajectory_pb2.Trajectory]) -> Amount:
        """See `ScoreSource.most`: every answered call costs, and models read what they are sent."""
        price = self._call_price or 0.0
        if not self._reads_conversations:
            return Amount(0, price)
        bodies = [
            self._body(history)
            for trajectory in self._distinct(trajectories).values()
            for history in histories_of(trajectory)
        ]
        return Amount(sum(map(most_tokens, bodies)), price * len(bodies))

    async def try_key(self) -> str:
        """As `OpenAIJudge.try_key`: asked about nothing, which no scorer has a score for."""
        asked: dict[str, object] = {}
        if self._reads_conversations:
            asked["messages"] = []
            if self._endpoint.model:
                asked["model"] = self._endpoint.model
        asking = self._api.request("POST", self._path, asked)
        return await refusal_of(asking, "" if self._trusted else _WITHHELD)

    async def scores(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
    ) -> list[Score | Unscored]:
        """See `ScoreSource.scores`."""
        try:
            if not self._reads_conversations:
                return await self._of_group(group, trajectories, usage)
            return await self._of_conversations(trajectories, usage)
        except (UnavailableError, FailedPreconditionError) as error:
            if self._trusted:
                raise
            log.info("a scorer that a job names: %s", error.message)
            raise type(error)(_WITHHELD, reason=error.reason, metadata=error.metadata) from error
        except (RequestRefusedError, NoAnswerError) as error:
            log.info("a scorer that a job names: %s", error)
            raise RequestRefusedError(str(error) if self._trusted else _WITHHELD) from error

    async def _of_group(
        self,
        group: trajectory_pb2.Group,
        trajectories: Sequence[trajectory_pb2.Trajectory],
        usage: Usage,
    ) -> list[Score | Unscored]:
        body = self._extra | http_protocols.group_body(group, trajectories)
        content = await self._post(body, usage)
        return http_protocols.group_scores(content, len(trajectories))

    async def _of_conversations(
        self, trajectories: Sequence[trajectory_pb2.Trajectory], usage: Usage
    ) -> list[Score | Unscored]:
        words = [attempt_of(trajectory) for trajectory in trajectories]
        asked = self._distinct(trajectories)
        outcomes = await asyncio.gather(
            *(self._of_attempt(trajectory, usage) for trajectory in asked.values()),
            return_exceptions=True,
        )
        found: dict[Attempt, Score | Unscored] = {}
        for attempt, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, RequestRefusedError | NoAnswerError | VerdictError):
                # Of this attempt alone, such as one that is too long for the model.
                is_shown = isinstance(outcome, VerdictError) or self._trusted
                found[attempt] = Unscored(f"http: {outcome if is_shown else _WITHHELD}")
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[attempt] = Score(outcome)
        unscored = [each.reason for each in found.values() if isinstance(each, Unscored)]
        if found and len(unscored) == len(found):
            raise VerdictError(unscored[0].removeprefix("http: "))
        return [found[attempt] if attempt else _SILENT for attempt in words]

    @staticmethod
    def _distinct(
        trajectories: Sequence[trajectory_pb2.Trajectory],
    ) -> dict[Attempt, trajectory_pb2.Trajectory]:
        """One of each words, but of none."""
        found: dict[Attempt, trajectory_pb2.Trajectory] = {}
        for trajectory in trajectories:
            if attempt := attempt_of(trajectory):
                found.setdefault(attempt, trajectory)
        return found

    async def _of_attempt(self, trajectory: trajectory_pb2.Trajectory, usage: Usage) -> float:
        """The mean of its conversations' scores."""
        asked = (self._of_history(history, usage) for history in histories_of(trajectory))
        return mean(await asyncio.gather(*asked))

    async def _of_history(self, history: trajectory_pb2.History, usage: Usage) -> float:
        body = self._body(history)
        content = await self._post(body, usage)
        read = http_protocols.prompt_tokens(content)
        usage.prompt_tokens += read
        self._metrics.spent(read, 0, None)
        if self._path != _CLASSIFY:
            return http_protocols.pooled_score(content)
        has_index = self._spec.HasField("class_index")
        return http_protocols.class_score(content, self._spec.class_index if has_index else None)

    def _body(self, history: trajectory_pb2.History) -> dict[str, object]:
        body: dict[str, object] = dict(self._extra)
        body["messages"] = http_protocols.chat_messages(history)
        if self._endpoint.model:
            body["model"] = self._endpoint.model
        return body

    async def _post(self, body: dict[str, object], usage: Usage) -> bytes:
        async with self._bounds.free:
            try:
                async with asyncio.timeout(self._bounds.seconds):
                    response = await self._api.request("POST", self._path, body)
            except TimeoutError:
                raise UnavailableError(
                    f"the scorer had no answer within {self._bounds.seconds:g} seconds",
                    reason=NO_JUDGE_ANSWERS,
                ) from None
            except UnavailableError as error:
                if error.metadata.get("status") != "500":
                    raise
                # Each time: it is there, and breaks on what it was asked.
                raise RequestRefusedError("the scorer answered HTTP 500 each time") from error
            finally:
                usage.calls += 1
        if response.status_code != 200:
            self._metrics.called("rejected")
            words = http_protocols.refusal(response.content)
            raise RequestRefusedError(
                f"the scorer answered HTTP {response.status_code}{': ' + words if words else ''}"
            )
        self._metrics.called("ok")
        if self._call_price is not None:
            # Whoever answered is paid, whatever the answer is worth.
            usage.cost += self._call_price
            self._metrics.spent(0, 0, self._call_price)
        return response.content
