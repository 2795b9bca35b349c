"""All attempts of a group at once.

An attempt that loses a call of the policy or of its environment begins again, once: its id and
seeds are the same, so it comes out as if nothing had been lost. Lost again, inference is away,
which ends the group for the controller to ask for it later (docs/decisions/0006). Where inference
broke twice on this attempt alone, or its environment was lost twice under it, it is one that
failed; where that is so of all attempts, it ends the group (docs/decisions/0087).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence

from podium.core.errors import (
    InternalError,
    InvalidArgumentError,
    PodiumError,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from podium.core.skip_reasons import EPISODES_WERE_LOST, NO_ENVIRONMENT_ANSWERS, NOT_COLLECTED
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics
from podium_rollout.domain.episode import EnvironmentLostError, Episode, PolicyLostError
from podium_rollout.domain.ports import Environments, PlayerModels, Policy

logger = logging.getLogger(__name__)


class GroupRunner:
    """Runs groups, a bounded number at once."""

    def __init__(
        self,
        environments: Environments,
        policies: Mapping[str, Policy],
        max_groups: int,
        models: PlayerModels | None = None,
    ) -> None:
        """One a process. `policies` are the pools by name; the first is for who names none.

        Without `models` no model plays beside the policy.
        """
        self._environments = environments
        self._policies = policies
        self._max_groups = max_groups
        self._models = models
        self._running = 0

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> AsyncGenerator[pb.Trajectory]:
        """Each trajectory as its episode ends. Closing the iterator cancels the rest.

        Raises:
            ResourceExhaustedError: too many groups at once.
            InvalidArgumentError: sampling that cannot train, or a player or a
                pool that there is not.
            UnavailableError: the environment is away (ENVIRONMENT_UNAVAILABLE),
                or was lost under all attempts (EPISODES_LOST).
            PodiumError: an attempt's policy could not act, nor when it began
                again; the others are cancelled.
        """
        check_sampling(request)
        policy = self._policy(request.pool)
        if self._running >= self._max_groups:
            raise ResourceExhaustedError(
                f"{self._max_groups} groups are being collected already", reason="TOO_MANY_GROUPS"
            )
        self._running += 1
        metrics.GROUPS_IN_FLIGHT.set(self._running)
        tasks = {
            asyncio.create_task(
                self._attempt(request, attempt, policy), name=f"{request.group_id}/t{attempt}"
            ): attempt
            for attempt in range(request.attempts)
        }
        pending = set(tasks)
        broken: dict[int, PodiumError] = {}
        lost: list[EnvironmentLostError] = []
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        found = task.result()
                    except PolicyLostError as error:
                        broken[tasks[task]] = error.cause
                        continue
                    except EnvironmentLostError as error:
                        lost.append(error)
                        continue
                    for trajectory in found:
                        yield trajectory
            if len(broken) + len(lost) == len(tasks):
                raise next(iter(broken.values())) if broken else _all_lost(lost)
            for attempt, cause in broken.items():
                yield _broken(request, attempt, cause)
            for each in lost:
                metrics.lost(request.environment)
                for trajectory in each.trajectories:
                    yield trajectory
        finally:
            for task in tasks:
                task.cancel()
            # All of them: when inference dies, several attempts have raised at once.
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running -= 1
            metrics.GROUPS_IN_FLIGHT.set(self._running)

    async def _attempt(
        self, request: rollout_pb.CollectGroupRequest, attempt: int, policy: Policy
    ) -> list[pb.Trajectory]:
        """Its trajectories, where need be of a second try.

        Raises:
            PolicyLostError: inference broke on it twice.
            EnvironmentLostError: the environment was lost under it twice.
        """
        began = time.monotonic()
        first: EnvironmentLostError | None = None
        try:
            return await self._episode(request, attempt, policy).run()
        except (PolicyLostError, EnvironmentLostError) as lost:
            first = lost if isinstance(lost, EnvironmentLostError) else None
            # The caller waits for this and one whole episode, no longer.
            if time.monotonic() - began > request.episode.session_wait_seconds:
                if first is not None:
                    raise
                raise lost.cause from None
            metrics.ATTEMPTS_BEGUN_AGAIN.inc()
            logger.warning(
                "an attempt lost a call and begins again",
                extra={"trajectory": f"{request.group_id}/t{attempt}", "error": str(lost)},
            )
        try:
            return await self._episode(request, attempt, policy).run()
        except PolicyLostError as lost:
            if isinstance(lost.cause, InternalError):
                raise
            raise lost.cause from None
        except UnavailableError:
            # Away since it was lost: that is what became of the attempt.
            if first is None:
                raise
            raise first from None

    def _episode(
        self, request: rollout_pb.CollectGroupRequest, attempt: int, policy: Policy
    ) -> Episode:
        return Episode(request, attempt, self._environments, policy, self._models)

    def _policy(self, pool: str) -> Policy:
        name = pool or next(iter(self._policies))
        if name not in self._policies:
            allowed = ", ".join(self._policies)
            raise InvalidArgumentError(
                violations=[Violation("pool", f"got {pool!r}; allowed are {allowed}")]
            )
        return self._policies[name]


def _all_lost(lost: Sequence[EnvironmentLostError]) -> UnavailableError:
    """What ends a group that lost its environment under all of its attempts."""
    for each in lost:
        # An environment that says so itself is there, and what it needs is away.
        if each.cause.reason != NO_ENVIRONMENT_ANSWERS:
            cause = each.cause
            return UnavailableError(
                cause.message, reason=EPISODES_WERE_LOST, metadata=cause.metadata
            )
    return lost[0].cause


def _broken(
    request: rollout_pb.CollectGroupRequest, attempt: int, error: PodiumError
) -> pb.Trajectory:
    """An attempt that inference broke on, twice."""
    trajectory = pb.Trajectory(
        id=f"{request.group_id}/t{attempt}",
        group_id=request.group_id,
        scenario_id=request.scenario.id,
        attempt=attempt,
        stop_reason=pb.STOP_REASON_FAILED,
        failure=pb.Failure(type=NOT_COLLECTED, message=error.message),
    )
    trajectory.start_time.GetCurrentTime()
    trajectory.end_time.CopyFrom(trajectory.start_time)
    return trajectory


def check_sampling(request: rollout_pb.CollectGroupRequest) -> None:
    """Refuses filters that make the sampler's log-probs those of another distribution.

    Raises:
        InvalidArgumentError: naming each.
    """
    sampling = request.sampling
    why = "log-probs of a training rollout must be those of the full softmax"
    violations = []
    if sampling.HasField("top_p") and sampling.top_p < 1:
        violations.append(Violation("sampling.top_p", f"got {sampling.top_p:g}, not 1: {why}"))
    if sampling.top_k > 0:
        violations.append(Violation("sampling.top_k", f"got {sampling.top_k}, not 0: {why}"))
    if sampling.json_schema:
        violations.append(Violation("sampling.json_schema", f"must be empty: {why}"))
    if violations:
        raise InvalidArgumentError(violations=violations)
