"""One episode: the agent loop, from reset to a finished trajectory."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from opentelemetry import trace
from podium.core.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    PodiumError,
    UnavailableError,
)
from podium.core.tool_calls import parse_tool_calls
from podium.environment.v1 import environment_service_pb2 as environment_pb
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.telemetry import current_trace_id, tracer
from podium.types.v1 import policy_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout import metrics
from podium_rollout.environments import EnvironmentRaisedError, Environments, Session
from podium_rollout.policy import Policy
from podium_rollout.record import Record
from podium_rollout.seeds import derive

logger = logging.getLogger(__name__)
_tracer = tracer(__name__)

T = TypeVar("T")

_TRACEBACK_BYTES = 16 * 1024


class _EnvironmentFailedError(Exception):
    """Carries what the environment raised past the errors of the policy."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class _History:
    conversation: inference_pb.RenderRequest = field(default_factory=inference_pb.RenderRequest)
    """Its messages and tools; `prefix_messages` of them are in the record."""
    record: Record = field(default_factory=Record)


@dataclass
class _Progress:
    histories: list[_History] = field(default_factory=lambda: [_History()])
    turns: int = 0
    reward: float = 0.0
    last: environment_pb.StepResponse = field(default_factory=environment_pb.StepResponse)
    metrics: dict[str, float] = field(default_factory=dict)


class Episode:
    """Runs one attempt of a group.

    What the environment raises, or takes too long over, ends the episode and
    is kept in the trajectory. What the policy raises ends the whole group, and
    so does an environment that is away or refuses to begin.
    """

    def __init__(
        self,
        request: rollout_pb.CollectGroupRequest,
        attempt: int,
        environments: Environments,
        policy: Policy,
    ) -> None:
        """Nothing runs yet."""
        self._request = request
        self._attempt = attempt
        self._environments = environments
        self._policy = policy
        self._id = f"{request.group_id}/t{attempt}"
        self._progress = _Progress()

    async def run(self) -> pb.Trajectory:
        """The trajectory.

        Raises:
            PodiumError: the policy could not act, or the environment refused to begin; the
                group cannot be completed.
        """
        name = self._request.environment.name
        began = time.time()
        trajectory = pb.Trajectory(
            id=self._id,
            group_id=self._request.group_id,
            scenario_id=self._request.scenario.id,
            attempt=self._attempt,
        )
        with (
            _tracer.start_as_current_span(
                "rollout", attributes={"podium.trajectory": self._id, "podium.environment": name}
            ) as span,
            metrics.EPISODES_IN_FLIGHT.track_inprogress(),
        ):
            trajectory.trace_id = current_trace_id()
            try:
                async with asyncio.timeout(self._request.episode.timeout_seconds):
                    trajectory.stop_reason = await self._play()
            except TimeoutError:
                trajectory.stop_reason = pb.STOP_REASON_DEADLINE
            except _EnvironmentFailedError as error:
                trajectory.stop_reason = pb.STOP_REASON_FAILED
                trajectory.failure.CopyFrom(_failure(error.cause))
                span.set_status(trace.StatusCode.ERROR, type(error.cause).__name__)
        self._fill(trajectory, began)
        outcome = pb.StopReason.Name(trajectory.stop_reason).removeprefix("STOP_REASON_").lower()
        metrics.EPISODES.labels(name, outcome).inc()
        metrics.TURNS.labels(name).observe(self._progress.turns)
        metrics.EPISODE_SECONDS.labels(name).observe(time.time() - began)
        metrics.ENVIRONMENT_REWARD.labels(name).observe(self._progress.reward)
        return trajectory

    async def _play(self) -> pb.StopReason.ValueType:
        episode = self._request.episode
        async with self._environments.session(self._request.environment) as session:
            seed = derive(self._request.seed, self._request.group_id)
            try:
                observation = await self._environment(session.reset(self._request.scenario, seed))
            except _EnvironmentFailedError as error:
                # Refused, full or not an environment at all: nothing that one attempt did.
                cause = error.cause
                if isinstance(cause, PodiumError) and not isinstance(cause, InternalError):
                    raise cause from None
                raise
            self._observe(observation)
            for turn in range(episode.max_turns):
                with _tracer.start_as_current_span("turn", attributes={"podium.turn": turn}):
                    reason = await self._turn(session, turn)
                if reason is not None:
                    return reason
        return pb.STOP_REASON_MAX_TURNS

    async def _turn(self, session: Session, turn: int) -> pb.StopReason.ValueType | None:
        progress = self._progress
        sampling = policy_pb2.SamplingParams()
        sampling.CopyFrom(self._request.sampling)
        if sampling.temperature > 0:
            sampling.seed = derive(self._request.seed, self._id, turn)
        try:
            history, context = await self._context()
            prompt = inference_pb.GenerateRequest(policy=self._request.policy, sampling=sampling)
            prompt.prompt_token_ids.MergeFrom(history.record.token_ids)
            prompt.prompt_token_ids.MergeFrom(context)
            generation = await self._policy.generate(prompt)
        except InvalidArgumentError as error:
            if error.reason == "CONTEXT_LENGTH_EXCEEDED":
                return pb.STOP_REASON_CONTEXT_LENGTH
            raise
        # Not before: a prompt that the engine refused is no part of the record.
        history.record.context(context)
        history.record.sampled(generation, sampling.temperature)
        progress.turns += 1
        message = (
            parse_tool_calls(generation.text)
            if history.conversation.tools
            else pb.Message(role=pb.ROLE_ASSISTANT, content=generation.text)
        )
        history.conversation.messages.append(message)
        history.conversation.prefix_messages = len(history.conversation.messages)
        with _tracer.start_as_current_span("environment_step"):
            result = await self._environment(session.step(message))
        progress.last = result
        progress.reward += result.reward
        progress.metrics.update(result.metrics)
        if result.terminated:
            return pb.STOP_REASON_TERMINATED
        if result.truncated:
            return pb.STOP_REASON_TRUNCATED
        self._observe(result.observation)
        return None

    async def _context(self) -> tuple[_History, Sequence[int]]:
        """The next assistant turn's history, and what its prompt has beyond the record."""
        history = self._progress.histories[-1]
        # Its end is enough to go on from, however long the record is.
        history.conversation.prefix_ids[:] = history.record.token_ids[-1:]
        try:
            rendered = await self._policy.render(history.conversation)
        except FailedPreconditionError as error:
            if error.reason != "HISTORY_NOT_CONTINUABLE" or not len(history.record):
                raise
            metrics.HISTORY_SPLITS.inc()
            history = self._split(history)
            rendered = await self._policy.render(history.conversation)
        prefix = history.conversation.prefix_ids
        if rendered.token_ids[: len(prefix)] != prefix:
            raise InternalError("inference rendered a sampled turn again")
        del rendered.token_ids[: len(prefix)]
        return history, rendered.token_ids

    def _split(self, history: _History) -> _History:
        """A further history of the same words."""
        again = _History()
        again.conversation.CopyFrom(history.conversation)
        again.conversation.ClearField("prefix_ids")
        again.conversation.ClearField("prefix_messages")
        self._progress.histories.append(again)
        return again

    def _observe(self, observation: environment_pb.Observation) -> None:
        conversation = self._progress.histories[-1].conversation
        conversation.messages.extend(observation.messages)
        del conversation.tools[:]
        conversation.tools.extend(observation.tools)

    async def _environment(self, call: Awaitable[T]) -> T:
        seconds = self._request.episode.step_timeout_seconds
        try:
            # The episode's own deadline passes through as CancelledError.
            async with asyncio.timeout(seconds) as limit:
                return await call
        except UnavailableError:
            raise
        except Exception as error:
            cause: Exception = error
            if limit.expired():
                cause = TimeoutError(f"the environment did not answer within {seconds:g} s")
            raise _EnvironmentFailedError(cause) from error

    def _fill(self, trajectory: pb.Trajectory, began: float) -> None:
        progress = self._progress
        for history in progress.histories:
            record = history.record.build()
            sampled = sum(span.length for span in record.spans)
            metrics.TOKENS.labels("sampled").inc(sampled)
            metrics.TOKENS.labels("context").inc(len(record.token_ids) - sampled)
            if history.conversation.messages:
                trajectory.histories.add(
                    messages=history.conversation.messages,
                    tools=history.conversation.tools,
                    tokens=record,
                )
        if math.isfinite(progress.reward) and trajectory.stop_reason != pb.STOP_REASON_FAILED:
            trajectory.environment_reward = progress.reward
        trajectory.metrics.update({"turns": float(progress.turns)} | progress.metrics)
        trajectory.info.CopyFrom(progress.last.info)
        trajectory.start_time.FromNanoseconds(int(began * 1e9))
        trajectory.end_time.GetCurrentTime()


def _failure(error: BaseException) -> pb.Failure:
    if isinstance(error, EnvironmentRaisedError):
        return pb.Failure(
            type=error.kind,
            message=str(error),
            traceback=f"the environment's log has it under error id {error.error_id}\n",
        )
    lines = "".join(traceback.format_exception(error))
    return pb.Failure(
        type=type(error).__name__,
        message=str(error),
        traceback=lines.encode()[-_TRACEBACK_BYTES:].decode(errors="ignore"),
    )
