"""One episode: the agent loop, from reset to a finished trajectory."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf import struct_pb2
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
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.telemetry import current_trace_id, tracer
from podium.types.v1 import policy_pb2
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout import metrics
from podium_rollout.environments import Environments, Session
from podium_rollout.policy import Policy
from podium_rollout.record import Record
from podium_rollout.remote import EnvironmentRaisedError
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
    messages: list[pb.Message] = field(default_factory=list)
    record: Record = field(default_factory=Record)
    covered: int = 0
    """How many of the messages the record holds."""


@dataclass
class _Progress:
    histories: list[_History] = field(default_factory=lambda: [_History()])
    tools: list[pb.Tool] = field(default_factory=list)
    turns: int = 0
    reward: float = 0.0
    info: struct_pb2.Struct = field(default_factory=struct_pb2.Struct)
    began: float = 0.0
    """When the episode had its session."""
    reset: bool = False
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
        self._progress.began = time.time()
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
                trajectory.stop_reason = await self._run()
            except _EnvironmentFailedError as error:
                trajectory.stop_reason = pb.STOP_REASON_FAILED
                trajectory.failure.CopyFrom(_failure(error.cause))
                span.set_status(trace.StatusCode.ERROR, type(error.cause).__name__)
        self._fill(trajectory)
        outcome = pb.StopReason.Name(trajectory.stop_reason).removeprefix("STOP_REASON_").lower()
        metrics.EPISODES.labels(name, outcome).inc()
        metrics.TURNS.labels(name).observe(self._progress.turns)
        metrics.EPISODE_SECONDS.labels(name).observe(time.time() - self._progress.began)
        metrics.ENVIRONMENT_REWARD.labels(name).observe(self._progress.reward)
        return trajectory

    async def _run(self) -> pb.StopReason.ValueType:
        async with AsyncExitStack() as stack:
            opening = self._environments.session(
                self._request.environment, self._request.episode, self._id
            )
            with metrics.EPISODES_WAITING.track_inprogress():
                session = await self._beginning(stack.enter_async_context(opening), None)
            self._progress.began = time.time()
            try:
                async with asyncio.timeout(self._request.episode.timeout_seconds):
                    reason = await self._play(session)
            except TimeoutError:
                reason = pb.STOP_REASON_DEADLINE
            if self._progress.reset:
                await self._score(session)
        return reason

    async def _play(self, session: Session) -> pb.StopReason.ValueType:
        episode = self._request.episode
        seed = derive(self._request.seed, self._request.group_id)
        self._observe(
            await self._beginning(
                session.reset(self._request.scenario, seed), episode.step_timeout_seconds
            )
        )
        self._progress.reset = True
        for turn in range(episode.max_turns):
            with _tracer.start_as_current_span("turn", attributes={"podium.turn": turn}):
                reason = await self._turn(session, turn)
            if reason is not None:
                return reason
        return pb.STOP_REASON_MAX_TURNS

    async def _score(self, session: Session) -> None:
        progress = self._progress
        with _tracer.start_as_current_span("environment_score"):
            score = await self._environment(
                session.score(), self._request.episode.step_timeout_seconds
            )
        progress.reward += score.reward
        progress.metrics.update(score.metrics)
        progress.info.MergeFrom(score.info)

    async def _turn(self, session: Session, turn: int) -> pb.StopReason.ValueType | None:
        progress = self._progress
        sampling = policy_pb2.SamplingParams()
        sampling.CopyFrom(self._request.sampling)
        if sampling.temperature > 0:
            sampling.seed = derive(self._request.seed, self._id, turn)
        try:
            history, prompt = await self._prompt()
            generation = await self._policy.generate(prompt, self._request.policy, sampling)
        except InvalidArgumentError as error:
            if error.reason == "CONTEXT_LENGTH_EXCEEDED":
                return pb.STOP_REASON_CONTEXT_LENGTH
            raise
        # Not before: a prompt that the engine refused is no part of the record.
        history.record.prompt(prompt)
        history.record.sampled(generation, sampling.temperature)
        progress.turns += 1
        message = (
            parse_tool_calls(generation.text)
            if progress.tools
            else pb.Message(role=pb.ROLE_ASSISTANT, content=generation.text)
        )
        history.messages.append(message)
        history.covered = len(history.messages)
        with _tracer.start_as_current_span("environment_step"):
            result = await self._environment(
                session.step(message), self._request.episode.step_timeout_seconds
            )
        progress.info = result.info
        progress.reward += result.reward
        progress.metrics.update(result.metrics)
        if result.terminated:
            return pb.STOP_REASON_TERMINATED
        if result.truncated:
            return pb.STOP_REASON_TRUNCATED
        self._observe(result.observation)
        return None

    async def _prompt(self) -> tuple[_History, list[int]]:
        """The next assistant turn's history, and its prompt."""
        history = self._progress.histories[-1]
        try:
            prompt = await self._policy.render(
                history.messages, self._progress.tools, history.record.token_ids, history.covered
            )
        except FailedPreconditionError as error:
            if error.reason != "HISTORY_NOT_CONTINUABLE" or not history.covered:
                raise
            metrics.HISTORY_SPLITS.inc()
            history = _History(messages=list(history.messages))
            self._progress.histories.append(history)
            prompt = await self._policy.render(history.messages, self._progress.tools)
        return history, prompt

    def _observe(self, observation: environment_pb.Observation) -> None:
        self._progress.histories[-1].messages.extend(observation.messages)
        self._progress.tools = list(observation.tools)

    async def _beginning(self, call: Awaitable[T], seconds: float | None) -> T:
        try:
            return await self._environment(call, seconds)
        except _EnvironmentFailedError as error:
            # Refused, full or not an environment at all: nothing that one attempt did.
            cause = error.cause
            if isinstance(cause, PodiumError) and not isinstance(cause, InternalError):
                raise cause from None
            raise

    async def _environment(self, call: Awaitable[T], seconds: float | None) -> T:
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

    def _fill(self, trajectory: pb.Trajectory) -> None:
        progress = self._progress
        for history in progress.histories:
            record = history.record.build()
            sampled = sum(span.length for span in record.spans)
            metrics.TOKENS.labels("sampled").inc(sampled)
            metrics.TOKENS.labels("context").inc(len(record.token_ids) - sampled)
            if history.messages:
                trajectory.histories.add(
                    messages=history.messages, tools=progress.tools, tokens=record
                )
        if math.isfinite(progress.reward) and trajectory.stop_reason != pb.STOP_REASON_FAILED:
            trajectory.environment_reward = progress.reward
        trajectory.metrics.update({"turns": float(progress.turns)} | progress.metrics)
        trajectory.info.CopyFrom(progress.info)
        trajectory.start_time.FromNanoseconds(int(progress.began * 1e9))
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
