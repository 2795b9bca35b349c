"""Makes scorers that ask others from their specs; what they share between groups lives here."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

import httpx
from podium.core.contract.judging import (
    JudgedSpec,
    criteria_violations,
    fallbacks_of,
    judges_of,
)
from podium.core.errors import InvalidArgumentError, PodiumError, Violation
from podium.core.spending import NOTHING, Account, Amount, SpendingBound
from podium.types.v1 import spec_pb2

from podium_judge.adapters.endpoints import resolve_http, resolve_judges
from podium_judge.adapters.http_scorer import HttpSource, QuestionBounds
from podium_judge.adapters.judge_model import OpenAIJudge
from podium_judge.domain.budget import Allowance, Grant, Spending
from podium_judge.domain.cache import OpinionCache
from podium_judge.domain.judge import CachedJudge, LimitedJudge, ModelJudge
from podium_judge.domain.judge_config import CallLimits, JudgeConfig
from podium_judge.domain.paid_model import PaidModel
from podium_judge.domain.panel import Panel, Seat, mean, median
from podium_judge.domain.position import PositionBias
from podium_judge.domain.rubric import RubricScorer
from podium_judge.domain.ruler import RulerScorer
from podium_judge.domain.scoring import GroupScorer, GroupSpec
from podium_judge.domain.served import ServedScorer
from podium_judge.settings import Settings

log = logging.getLogger(__name__)

_MAX_MODELS = 256
# Somebody waits for it who submits a job.
_LOOK = CallLimits(timeout_seconds=5.0, attempts=1)


@dataclass(frozen=True)
class KnownSpending:
    """What the caller knows of the money: no replica knows what the others have spent."""

    job: Amount = NOTHING
    """What the job has spent."""
    grant: Grant = field(default_factory=Grant)
    """What the call may spend."""
    has_bounds: bool = False
    """Whether any scorer of the call has one of its own."""


class Scorers:
    """Holds connections, bounds of calls, known answers, spending and the bias of places."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self._client = client
        self._at_once = asyncio.Semaphore(settings.max_concurrent_calls)
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

    def scorer(self, spec: GroupSpec, field: str, job_id: str, known: KnownSpending) -> GroupScorer:
        """The scorer of `spec`, which stands at `field`, for a group of a job.

        Raises:
            InvalidArgumentError: the spec is wrong, or it has a budget and the group
                no job.
        """
        if isinstance(spec, spec_pb2.HttpScorerSpec):
            return self._served(spec, field, job_id, known)
        if isinstance(spec, spec_pb2.RubricSpec):
            return self._rubric(spec, field, job_id, known)
        allowance = self._allowance(spec, field, job_id, known)
        return RulerScorer(
            self._panel(spec, field, allowance),
            spec.rubric,
            spec.max_prompt_tokens or self._settings.max_prompt_tokens,
            allowance,
            spec.both_orders,
        )

    def _rubric(
        self, spec: spec_pb2.RubricSpec, field: str, job_id: str, known: KnownSpending
    ) -> RubricScorer:
        if violations := criteria_violations(spec, field):
            raise InvalidArgumentError(violations=violations)
        allowance = self._allowance(spec, field, job_id, known)
        return RubricScorer(
            self._panel(spec, field, allowance),
            spec.criteria,
            spec.max_prompt_tokens or self._settings.max_prompt_tokens,
            allowance,
        )

    def _served(
        self, spec: spec_pb2.HttpScorerSpec, field: str, job_id: str, known: KnownSpending
    ) -> ServedScorer:
        seconds = spec.timeout_seconds or self._limits.timeout_seconds
        limits = replace(self._limits, timeout_seconds=seconds)
        source = self._source(spec, field, limits)
        return ServedScorer(source, self._allowance(spec, field, job_id, known))

    def _source(self, spec: spec_pb2.HttpScorerSpec, field: str, limits: CallLimits) -> HttpSource:
        seconds = max(limits.timeout_seconds, self._settings.question_seconds)
        return HttpSource(
            self._client,
            resolve_http(spec, field, self._settings),
            limits,
            spec,
            QuestionBounds(self._at_once, seconds),
        )

    def _panel(self, spec: JudgedSpec, field: str, allowance: Allowance) -> Panel:
        judges, fallbacks = resolve_judges(spec, field, self._settings)
        seats = [
            self._seat(config, seat, allowance) for seat, config in enumerate((*judges, *fallbacks))
        ]
        median_wanted = spec.combination == spec_pb2.PANEL_COMBINATION_MEDIAN
        return Panel(
            seats[: len(judges)],
            seats[len(judges) :],
            spec.quorum,
            median if median_wanted else mean,
            self._biases,
        )

    async def violations(self, spec: JudgedSpec, field: str, base_model: str) -> list[Violation]:
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

    async def refusals(self, spec: GroupSpec, field: str) -> list[Violation]:
        """Who is asked by `spec`, which stands at `field`, and refuses the key or the address.

        Raises:
            InvalidArgumentError: the spec is wrong.
        """
        if isinstance(spec, spec_pb2.HttpScorerSpec):
            text = await self._source(spec, field, _LOOK).try_key()
            return [Violation(field, text)] if text else []
        judges, fallbacks = resolve_judges(spec, field, self._settings)
        paths = [path for _, path in (*judges_of(spec, field), *fallbacks_of(spec, field))]
        # One without a name is Podium's own pool as a rule, which waits for its operator.
        named = [
            (config, path)
            for config, path in zip((*judges, *fallbacks), paths, strict=True)
            if config.endpoint.model
        ]
        looked = [OpenAIJudge(self._client, config, _LOOK).try_key() for config, _ in named]
        said = await asyncio.gather(*looked)
        return [Violation(path, text) for (_, path), text in zip(named, said, strict=True) if text]

    async def _merges(self, config: JudgeConfig) -> bool:
        try:
            return await OpenAIJudge(self._client, config, _LOOK).merges()
        except PodiumError as error:
            log.info("a judge could not be looked at", extra={"problem": error.message})
            return False

    def _seat(self, config: JudgeConfig, seat: int, allowance: Allowance) -> Seat:
        if len(self._models) > _MAX_MODELS:
            self._models.clear()
        model = self._models.get(config)
        if model is None:
            model = self._models[config] = OpenAIJudge(self._client, config, self._limits)
        most = config.sampling.max_completion_tokens
        paid = PaidModel(model, allowance, most, config.price)
        judge = ModelJudge(paid, config.price is not None, self._settings.question_seconds)
        return Seat(
            CachedJudge(LimitedJudge(judge, self._at_once), config, self._cache, seat), config.label
        )

    def _allowance(
        self, spec: GroupSpec, field: str, job_id: str, known: KnownSpending
    ) -> Allowance:
        cost = 0.0 if isinstance(spec, spec_pb2.HttpScorerSpec) else spec.max_job_cost
        if not job_id and (spec.max_job_tokens or cost):
            name = "max_job_tokens" if spec.max_job_tokens else "max_job_cost"
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        f"{field}.{name}",
                        "got a bound, but the group has no job_id; allowed is none, or a job_id",
                    )
                ]
            )
        if not job_id:
            return Allowance(grant=known.grant)
        bounds = []
        account, spent, grant = self._spending.of(job_id), known.job, known.grant
        tokens = [(self._settings.max_job_tokens, "PODIUM_JUDGE_MAX_JOB_TOKENS")]
        # Who grants a part of what the job's bounds leave keeps these itself, over all replicas.
        if grant.tokens is None:
            tokens.append((spec.max_job_tokens, "max_job_tokens"))
        for most, name in tokens:
            if most:
                bounds.append(_of_job(name, account, most, spent.tokens))
        if cost and grant.cost is None:
            bounds.append(_of_job("max_job_cost", account, cost, spent.cost, is_money=True))
        return Allowance(bounds, account, known.grant, reserves=known.has_bounds)


def _of_job(
    name: str, account: Account, most: float, elsewhere: float, *, is_money: bool = False
) -> SpendingBound:
    # What a replica has spent is stored by its caller, sooner or later.
    return SpendingBound("the job's judges", f"({name})", account, most, is_money, elsewhere, True)


def _itself(named: str) -> str:
    got = f"got {named!r}, the job's base model" if named else "got none"
    return (
        f"{got}, at a pool that merges what it trains into its weights: the policy would judge"
        " itself. Set base_url and model of another judge (for all jobs: PODIUM_JUDGE_BASE_URL"
        " and PODIUM_JUDGE_MODEL of the judge service), or let the pool serve adapters beside a"
        " frozen base model (weight mode `adapter`)"
    )
