"""Makes RULER scorers from their specs; what they share between groups lives here."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

import httpx
from podium.core.contract.judging import fallbacks_of, judges_of
from podium.core.errors import InvalidArgumentError, PodiumError, Violation
from podium.types.v1 import spec_pb2

from podium_judge.adapters.endpoints import resolve_judges
from podium_judge.adapters.judge_model import OpenAIJudge
from podium_judge.domain.budget import Allowance, Budget, JobSpending, ProjectBudget, Spending
from podium_judge.domain.cache import OpinionCache
from podium_judge.domain.judge import CachedJudge, LimitedJudge, ModelJudge
from podium_judge.domain.judge_config import CallLimits, JudgeConfig
from podium_judge.domain.panel import Panel, Seat, mean, median
from podium_judge.domain.position import PositionBias
from podium_judge.domain.ruler import RulerScorer
from podium_judge.domain.scores import Usage
from podium_judge.settings import Settings

log = logging.getLogger(__name__)

_MAX_MODELS = 256
# Somebody waits for it who submits a job.
_LOOK = CallLimits(timeout_seconds=5.0, attempts=1)


@dataclass(frozen=True)
class Told:
    """What the caller knows of the money: no replica knows what the others have spent."""

    job: Usage
    """What the job has spent."""
    project: ProjectBudget | None = None


class Rulers:
    """Holds connections, turns, known answers, spending and the bias of places."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self._client = client
        self._turns = asyncio.Semaphore(settings.max_concurrent_calls)
        self._limits = CallLimits(
            timeout_seconds=settings.request_timeout_seconds,
            attempts=settings.request_attempts,
            backoff_seconds=settings.backoff_seconds,
            max_backoff_seconds=settings.max_backoff_seconds,
        )
        self._models: dict[JudgeConfig, OpenAIJudge] = {}
        self._cache = OpinionCache(settings.cache_entries)
        self._spending = Spending()
        self._biases: dict[str, PositionBias] = {}

    def scorer(self, spec: spec_pb2.RulerSpec, field: str, job_id: str, told: Told) -> RulerScorer:
        """The scorer of `spec`, which stands at `field`, for a group of a job.

        Raises:
            InvalidArgumentError: the spec is wrong, or it has a budget and the group
                no job.
        """
        judges, fallbacks = resolve_judges(spec, field, self._settings)
        seats = [self._seat(config, seat) for seat, config in enumerate((*judges, *fallbacks))]
        median_wanted = spec.combination == spec_pb2.PANEL_COMBINATION_MEDIAN
        panel = Panel(
            seats[: len(judges)],
            seats[len(judges) :],
            spec.quorum,
            median if median_wanted else mean,
            self._biases,
        )
        return RulerScorer(
            panel,
            spec.rubric,
            spec.max_prompt_tokens or self._settings.max_prompt_tokens,
            replace(
                self._allowance(spec, field, job_id, told),
                prices=tuple(config.price for config in judges),
            ),
        )

    async def violations(
        self, spec: spec_pb2.RulerSpec, field: str, base_model: str
    ) -> list[Violation]:
        """Which judges of `spec`, which stands at `field`, would be the policy in training.

        Raises:
            InvalidArgumentError: the spec is wrong.
        """
        judges, fallbacks = resolve_judges(spec, field, self._settings)
        paths = [path for _, path in (*judges_of(spec, field), *fallbacks_of(spec, field))]
        found = []
        for config, path in zip((*judges, *fallbacks), paths, strict=True):
            named = config.endpoint.model
            if (not named or named == base_model) and await self._merges(config):
                found.append(Violation(f"{path}.model", _itself(named)))
        return found

    async def _merges(self, config: JudgeConfig) -> bool:
        try:
            return await OpenAIJudge(self._client, config, _LOOK).merges()
        except PodiumError as error:
            log.info("a judge could not be looked at", extra={"problem": error.message})
            return False

    def _seat(self, config: JudgeConfig, seat: int) -> Seat:
        if len(self._models) > _MAX_MODELS:
            self._models.clear()
        model = self._models.get(config)
        if model is None:
            model = self._models[config] = OpenAIJudge(self._client, config, self._limits)
        judge = ModelJudge(model, config.price is not None, self._settings.question_seconds)
        return Seat(
            CachedJudge(LimitedJudge(judge, self._turns), config, self._cache, seat), config.label
        )

    def _allowance(
        self, spec: spec_pb2.RulerSpec, field: str, job_id: str, told: Told
    ) -> Allowance:
        bounds = [n for n in (spec.max_job_tokens, self._settings.max_job_tokens) if n]
        budget = Budget(min(bounds, default=0), spec.max_job_cost)
        if not job_id and (spec.max_job_tokens or spec.max_job_cost):
            name = "max_job_tokens" if spec.max_job_tokens else "max_job_cost"
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        f"{field}.{name}",
                        "got a bound, but the group has no job_id; allowed is none, or a job_id",
                    )
                ]
            )
        if not job_id or budget == Budget():
            return Allowance(Budget(), JobSpending(), told.job, told.project)
        return Allowance(budget, self._spending.of(job_id), told.job, told.project)


def _itself(named: str) -> str:
    got = f"got {named!r}, the job's base model" if named else "got none"
    return (
        f"{got}, at a pool that merges what it trains into its weights: the policy would judge"
        " itself. Set base_url and model of another judge (for all jobs: PODIUM_JUDGE_BASE_URL"
        " and PODIUM_JUDGE_MODEL of the judge service), or let the pool serve adapters beside a"
        " frozen base model (weight mode `adapter`)"
    )
