"""One episode: the agent loop, from reset to a finished trajectory."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from podium.core.errors import (
    DataLossError,
    DeadlineExceededError,
    InternalError,
    PodiumError,
    RequestCancelledError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.core.skip_reasons import NO_ENVIRONMENT_ANSWERS
from podium.core.time_limits import time_limit
from podium.environment.v1 import environment_service_pb2 as environment_pb
from podium.kit.telemetry import current_span_id, current_trace_id, exemplar, failed
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics, spans
from podium_rollout.domain.conversation import Conversations
from podium_rollout.domain.ports import Environments, PlayerModels, Policy, Session
from podium_rollout.domain.seeds import derive
from podium_rollout.domain.speakers import (
    AgentSpeaker,
    Cast,
    ContextFullError,
    ModelSpeaker,
    TurnRef,
)
from podium_rollout.domain.trajectories import EpisodeProgress, build, failure_of

T = TypeVar("T")

# Of an environment that began badly. Said of a group, they would be taken for something of ours.
_OF_ONE_ATTEMPT = (InternalError, DataLossError, DeadlineExceededError, RequestCancelledError)


class _EnvironmentFailedError(Exception):
    """Wraps what the environment raised, so that none of it is taken for the policy's error."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class EnvironmentLostError(Exception):
    """The environment was lost under an attempt: it may begin again."""

    def __init__(self, cause: UnavailableError, trajectories: Sequence[pb.Trajectory] = ()) -> None:
        """`trajectories` are what the attempt is when it does not: failed, as far as it came."""
        super().__init__(str(cause))
        self.cause = cause
        self.trajectories = trajectories


class PolicyLostError(Exception):
    """A call of the policy was lost, or broke: its attempt may begin again."""

    def __init__(self, cause: PodiumError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def away(cause: UnavailableError) -> UnavailableError:
    """The same as the absence of the environment, for the group to be asked for later."""
    return UnavailableError(cause.message, reason=NO_ENVIRONMENT_ANSWERS, metadata=cause.metadata)


def _count_waiting(queued: bool) -> None:
    metrics.EPISODES_WAITING.inc(1 if queued else -1)


class Episode:
    """Runs one attempt of a group.

    What the environment raises, or takes too long over, ends the episode and
    is kept in the trajectory. A policy or an environment that is lost on the way
    ends it without one (see `GroupRunner`), and an environment that gives no
    session or refuses to begin ends the whole group.
    """

    def __init__(
        self,
        request: rollout_pb.CollectGroupRequest,
        attempt: int,
        environments: Environments,
        policy: Policy,
        models: PlayerModels | None = None,
    ) -> None:
        """Nothing runs yet."""
        self._request = request
        self._attempt = attempt
        self._environments = environments
        self._id = f"{request.group_id}/t{attempt}"
        self._cast = Cast(request, self._id, policy, models)
        self._progress = EpisodeProgress(Conversations(request.episode))

    async def run(self) -> list[pb.Trajectory]:
        """Plays the episode; one trajectory for each side that the policy plays.

        Raises:
            PolicyLostError: a call of the policy was lost.
            EnvironmentLostError: one of the environment, of a session that there was.
            PodiumError: the policy could not act, or the environment refused to begin; the
                group cannot be completed. UnavailableError (ENVIRONMENT_UNAVAILABLE): it is away.
        """
        self._progress.begin()
        head = pb.Trajectory(
            id=self._id,
            group_id=self._request.group_id,
            scenario_id=self._request.scenario.id,
            attempt=self._attempt,
        )
        with (
            spans.rollout(self._request, self._id) as span,
            metrics.EPISODES_IN_FLIGHT.track_inprogress(),
        ):
            head.trace_id = current_trace_id()
            head.root_span_id = current_span_id()
            try:
                head.stop_reason = await self._run()
            except _EnvironmentFailedError as error:
                head.stop_reason = pb.STOP_REASON_FAILED
                head.failure.CopyFrom(failure_of(error.cause))
                failed(span, error.cause)
            except EnvironmentLostError as lost:
                head.stop_reason = pb.STOP_REASON_FAILED
                head.failure.CopyFrom(failure_of(lost.cause))
                lost.trajectories = build(head, self._progress, self._cast.trained)
                raise
            self._measure(head)
            trajectories = build(head, self._progress, self._cast.trained)
            spans.ended(span, trajectories)
        return trajectories

    def _measure(self, head: pb.Trajectory) -> None:
        progress = self._progress
        if self._cast.policy.capped:
            progress.metrics["capped_turns"] = float(self._cast.policy.capped)
        progress.metrics.update(self._cast.used())
        label = metrics.label_of(self._request.environment)
        outcome = pb.StopReason.Name(head.stop_reason).removeprefix("STOP_REASON_").lower()
        metrics.EPISODES.labels(label, outcome).inc()
        metrics.TURNS.labels(label).observe(sum(progress.turns.values()))
        metrics.EPISODE_SECONDS.labels(label).observe(progress.seconds(), exemplar())
        metrics.rewarded(label, progress.reward)

    async def _run(self) -> pb.StopReason.ValueType:
        async with AsyncExitStack() as stack:
            opening = self._environments.session(
                self._request.environment, self._request.episode, self._id
            )
            asked = time.monotonic()
            with metrics.EPISODES_WAITING.track_inprogress():
                session = await self._opened(stack.enter_async_context(opening))
            self._progress.begin()
            wait = self._request.episode.session_wait_seconds
            left = max(0.0, wait - (time.monotonic() - asked))
            try:
                async with time_limit(left, of_queue=True, turned=_count_waiting) as queue:
                    return await self._whole(session)
            except TimeoutError:
                if not queue.expired():
                    raise
                raise ResourceExhaustedError(
                    f"an episode of {self._request.environment.name!r} was queued for more than"
                    f" episode.session_wait_seconds, {wait:g} s: too many episodes share what its"
                    " steps take turns at, such as the places for programs, one a CPU",
                    reason="QUEUED_TOO_LONG",
                ) from None

    async def _whole(self, session: Session) -> pb.StopReason.ValueType:
        try:
            async with time_limit(self._request.episode.timeout_seconds):
                reason = await self._play(session)
        except TimeoutError:
            reason = pb.STOP_REASON_DEADLINE
        if self._progress.reset:
            await self._score(session)
        return reason

    async def _play(self, session: Session) -> pb.StopReason.ValueType:
        episode = self._request.episode
        seed = derive(self._request.seed, self._request.group_id)
        with spans.environment("environment_reset"):
            observation = await self._beginning(
                session.reset(self._request.scenario, seed), episode.step_timeout_seconds
            )
        self._observe(observation)
        self._progress.reset = True
        for turn in range(episode.max_turns):
            reason, observation = await self._turn(session, turn, observation)
            if reason is not None:
                return reason
        return pb.STOP_REASON_MAX_TURNS

    async def _score(self, session: Session) -> None:
        progress = self._progress
        with spans.environment("environment_score"):
            score = await self._environment(
                session.score(), self._request.episode.step_timeout_seconds
            )
        progress.scored(score)

    async def _turn(
        self, session: Session, number: int, observation: environment_pb.Observation
    ) -> tuple[pb.StopReason.ValueType | None, environment_pb.Observation]:
        progress = self._progress
        name = progress.conversations.speaking
        turn = TurnRef(self._id, number, observation)
        try:
            message = await self._speak(name, turn)
        except ContextFullError:
            return pb.STOP_REASON_CONTEXT_LENGTH, observation
        progress.turns[name] = progress.turns.get(name, 0) + 1
        notice = self._notice(name, message)
        action = pb.Message()
        action.CopyFrom(message)
        action.conversation = name
        action.ClearField("reasoning")
        tools = progress.conversations.history.request.tools
        with spans.Acting(action, tools, number) as acting:
            result = await self._environment(
                session.step(action), self._request.episode.step_timeout_seconds
            )
            acting.answered(result.observation.messages)
        progress.took(name, result)
        if result.terminated:
            return pb.STOP_REASON_TERMINATED, result.observation
        if result.truncated:
            return pb.STOP_REASON_TRUNCATED, result.observation
        self._observe(result.observation, notice)
        return None, result.observation

    async def _speak(self, name: str, turn: TurnRef) -> pb.Message:
        speaker = self._cast.speaker(name)
        spoken = speaker.speak(self._progress.conversations, turn)
        # A model that is away costs the attempts that need it; only the episode's time bounds it.
        if isinstance(speaker, ModelSpeaker):
            return await self._environment(spoken, None)
        # An agent is code as an environment is, and fails as one.
        if not isinstance(speaker, AgentSpeaker):
            try:
                return await spoken
            except (UnavailableError, DeadlineExceededError, InternalError) as error:
                raise PolicyLostError(error) from error
        return await self._environment(spoken, self._request.episode.step_timeout_seconds)

    def _notice(self, name: str, message: pb.Message) -> str:
        """The notice to the model of tool calls that could not be parsed; counts them."""
        progress = self._progress
        if not progress.conversations.history.request.tools:
            return ""
        count = len(message.malformed_calls)
        progress.malformed[name] = progress.malformed.get(name, 0) + count
        label = metrics.label_of(self._request.environment)
        metrics.MALFORMED_CALLS.labels(label).inc(count)
        return "\n".join(
            f"Error: a call could not be read: {why}." for why in message.malformed_calls
        )

    def _observe(self, observation: environment_pb.Observation, notice: str = "") -> None:
        try:
            self._progress.conversations.observe(observation.messages, observation.tools, notice)
        except ValueError as error:
            raise _EnvironmentFailedError(error) from error

    async def _opened(self, opening: Awaitable[Session]) -> Session:
        try:
            return await self._beginning(opening, None)
        except EnvironmentLostError as lost:
            # Nothing was played that could be lost.
            raise away(lost.cause) from lost.cause

    async def _beginning(self, call: Awaitable[T], seconds: float | None) -> T:
        try:
            return await self._environment(call, seconds)
        except _EnvironmentFailedError as error:
            # Refused, full or not an environment at all: nothing that one attempt did.
            cause = error.cause
            if isinstance(cause, PodiumError) and not isinstance(cause, _OF_ONE_ATTEMPT):
                raise cause from None
            raise

    async def _environment(self, call: Awaitable[T], seconds: float | None) -> T:
        try:
            # The episode's own deadline passes through as CancelledError.
            async with time_limit(seconds) as limit:
                return await call
        except UnavailableError as error:
            # What runs in this process is not lost: it says that what it needs is away.
            served = self._request.environment.address
            raise EnvironmentLostError(error if served else away(error)) from error
        except Exception as error:
            cause: Exception = error
            if limit.expired():
                cause = TimeoutError(f"the environment did not answer within {seconds:g} s")
            raise _EnvironmentFailedError(cause) from error
