"""JudgeService over gRPC: fills defaults, scores, maps the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import httpx
from podium.contract import apply_defaults
from podium.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from podium.telemetry import attributes, tracer
from podium.types.v1 import spec_pb2

from podium_judge import metrics
from podium_judge.endpoints import resolve_endpoint
from podium_judge.judge_model import CallLimits, Endpoint, JudgeModel, OpenAIJudge, Reply
from podium_judge.ruler import RulerScorer
from podium_judge.scores import Usage
from podium_judge.scoring import score_group
from podium_judge.settings import Settings

log = logging.getLogger(__name__)
_tracer = tracer(__name__)


class _Limited:
    """A judge model that waits for its turn."""

    def __init__(self, model: JudgeModel, turns: asyncio.Semaphore) -> None:
        self._model = model
        self._turns = turns

    async def ask(
        self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any], usage: Usage
    ) -> Reply:
        async with self._turns:
            return await self._model.ask(messages, schema, usage)


class JudgeServicer(judge_service_pb2_grpc.JudgeServiceServicer):
    """Stateless but for one connection pool."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient) -> None:
        self._settings = settings
        self._client = client
        self._turns = asyncio.Semaphore(settings.max_concurrent_calls)
        self._limits = CallLimits(
            timeout_seconds=settings.request_timeout_seconds,
            attempts=settings.request_attempts,
            backoff_seconds=settings.backoff_seconds,
            max_backoff_seconds=settings.max_backoff_seconds,
            temperature=settings.temperature,
            max_completion_tokens=settings.max_completion_tokens,
        )
        self._models: dict[Endpoint, OpenAIJudge] = {}

    async def ScoreGroup(
        self,
        request: judge_service_pb2.ScoreGroupRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> judge_service_pb2.ScoreGroupResponse:
        """See the proto file."""
        reward = spec_pb2.RewardSpec()
        reward.CopyFrom(request.reward)
        for scorer in reward.scorers:
            if scorer.kind == spec_pb2.SCORER_KIND_WEIGHTED:
                # Absent criteria are the default ones; apply_defaults cannot know the kind.
                scorer.weighted.SetInParent()
        apply_defaults(reward)
        usage = Usage()
        with (
            _tracer.start_as_current_span("score_group") as span,
            metrics.SCORE_SECONDS.time(),
        ):
            group = await score_group(request.group, reward, self._ruler, usage)
            outcome = group.skip_reason or "scored"
            span.set_attribute(attributes.GROUP_ID, group.id)
        metrics.GROUPS.labels(outcome=outcome).inc()
        log.info(
            "group judged",
            extra={"group": group.id, "outcome": outcome, "judge_calls": usage.calls},
        )
        return judge_service_pb2.ScoreGroupResponse(
            group=group,
            usage=judge_service_pb2.JudgeUsage(
                calls=usage.calls,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
            ),
        )

    def _ruler(self, spec: spec_pb2.RulerSpec, field: str) -> RulerScorer:
        endpoint = resolve_endpoint(spec, field, self._settings)
        if len(self._models) > 256:
            self._models.clear()
        model = self._models.get(endpoint)
        if model is None:
            model = self._models[endpoint] = OpenAIJudge(self._client, endpoint, self._limits)
        return RulerScorer(
            _Limited(model, self._turns), spec.rubric, self._settings.max_prompt_chars
        )
