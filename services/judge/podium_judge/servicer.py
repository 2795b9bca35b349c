"""JudgeService over gRPC: fills defaults, scores, maps the result."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import httpx
from opentelemetry import trace
from podium.core import skip_reasons
from podium.core.contract import apply_defaults
from podium.core.contract.judging import PART_FIELDS, judged_spec
from podium.core.errors import PodiumError
from podium.core.spending import Amount
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.kit.telemetry import attributes, span_of, timed, traced, tracer
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_judge.adapters.scorer_factory import KnownSpending, Scorers
from podium_judge.domain import metrics
from podium_judge.domain.budget import Grant
from podium_judge.domain.scores import Usage
from podium_judge.domain.scoring import check_reward, score_group
from podium_judge.settings import Settings

log = logging.getLogger(__name__)
_tracer = tracer(__name__)

_MAX_LINKS = 128
"""OpenTelemetry's own bound on a span's links."""
_ANY_JOB = "-"
"""Stands for the job that is to come."""


class JudgeServicer(judge_service_pb2_grpc.JudgeServiceServicer):
    """Keeps nothing that a result depends on."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient) -> None:
        self._scorers = Scorers(settings, client)
        self._most_job_tokens = settings.max_job_tokens

    async def ScoreGroup(
        self,
        request: judge_service_pb2.ScoreGroupRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> judge_service_pb2.ScoreGroupResponse:
        """See the proto file."""
        reward = _completed(request.reward)
        job_id = request.group.job_id
        known = _known(request, self._most_job_tokens)
        usage = Usage()
        # A trace of its own: a panel of judges makes many calls, and the step's is to be small.
        with traced(_tracer, "score_group", root=True) as span, timed(metrics.SCORE_SECONDS):
            _link(span, request.group)
            try:
                group = await score_group(
                    request.group,
                    reward,
                    lambda spec, field: self._scorers.scorer(spec, field, job_id, known),
                    usage,
                )
            except PodiumError as error:
                # Whoever asks again counts it, too.
                error.metadata.update(_as_metadata(usage))
                raise
            outcome = group.skip_reason or "scored"
            span.set_attribute(attributes.GROUP_ID, group.id)
        metrics.GROUPS.labels(outcome=outcome).inc()
        log.info(
            "group judged",
            extra={"group": group.id, "outcome": outcome, "judge_calls": usage.calls},
        )
        wanted = None
        if group.skip_reason == skip_reasons.JUDGE_BUDGET and known.grant.wanted:
            most = known.grant.wanted
            wanted = judge_service_pb2.JudgeGrant(tokens=most.tokens, cost=most.cost)
        return judge_service_pb2.ScoreGroupResponse(
            group=group, usage=_usage_message(usage), wanted=wanted
        )

    async def CheckReward(
        self,
        request: judge_service_pb2.CheckRewardRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> judge_service_pb2.CheckRewardResponse:
        """See the proto file."""
        known = KnownSpending()
        await check_reward(
            _completed(request.reward),
            lambda spec, field: self._scorers.scorer(spec, field, _ANY_JOB, known),
            lambda spec, field: self._scorers.violations(spec, field, request.base_model),
            self._scorers.refusals,
        )
        return judge_service_pb2.CheckRewardResponse()


def _link(span: trace.Span, group: trajectory_pb2.Group) -> None:
    """Links a judgement to the traces of the rollouts that it judges."""
    if not span.is_recording():
        return
    for trajectory in group.trajectories[:_MAX_LINKS]:
        if context := span_of(trajectory.trace_id, trajectory.root_span_id):
            span.add_link(context, {attributes.TRAJECTORY_ID: trajectory.id})


def _completed(reward: spec_pb2.RewardSpec) -> spec_pb2.RewardSpec:
    full = spec_pb2.RewardSpec()
    full.CopyFrom(reward)
    for scorer in full.scorers:
        # An absent part is the default one; apply_defaults cannot know the kind.
        if scorer.kind in PART_FIELDS:
            getattr(scorer, PART_FIELDS[scorer.kind]).SetInParent()
    return apply_defaults(full)


def _known(request: judge_service_pb2.ScoreGroupRequest, most_job_tokens: int) -> KnownSpending:
    spent, told = request.job_usage, request.grant
    grant = Grant(
        told.tokens if told.HasField("tokens") else None,
        told.cost if told.HasField("cost") else None,
    )
    return KnownSpending(
        Amount(spent.prompt_tokens + spent.completion_tokens, spent.cost),
        grant,
        bool(most_job_tokens) or any(map(_has_bound, request.reward.scorers)),
    )


def _has_bound(scorer: spec_pb2.Scorer) -> bool:
    judged = judged_spec(scorer)
    if judged is None:
        return bool(scorer.http.max_job_tokens)
    return bool(judged.max_job_tokens or judged.max_job_cost)


def _usage_message(usage: Usage) -> judge_service_pb2.JudgeUsage:
    return judge_service_pb2.JudgeUsage(
        calls=usage.calls,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cost=usage.cost,
        cached=usage.cached,
    )


def _as_metadata(usage: Usage) -> dict[str, str]:
    fields = _usage_message(usage).ListFields()
    return {field.name: str(value) for field, value in fields}
