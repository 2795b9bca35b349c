"""All attempts of a group at once.

An attempt that loses a call of the policy begins again, once: its id and its seeds are the same,
so it comes out as if nothing had been lost. Lost again, the service is away, which ends the group
for the controller to ask for it later (docs/decisions/0006); or it broke twice on this attempt
alone, which then is one that failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping

from podium.core.errors import (
    InternalError,
    InvalidArgumentError,
    PodiumError,
    ResourceExhaustedError,
    Violation,
)
from podium.core.skip_reasons import NOT_COLLECTED
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics
from podium_rollout.domain.episode import Episode, PolicyLostError
from podium_rollout.domain.ports import Environments, ModelPlayers, Policy

logger = logging.getLogger(__name__)


class GroupRunner:
    """Runs groups, a bounded number at once."""

    def __init__(
        self,
        environments: Environments,
        policies: Mapping[str, Policy],
        max_groups: int,
        models: ModelPlayers | None = None,
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
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        found = task.result()
                    except PolicyLostError as lost:
                        broken[tasks[task]] = lost.cause
                        continue
                    for trajectory in found:
                        yield trajectory
            if len(broken) == len(tasks):
                raise broken[0]
            for attempt, error in broken.items():
                yield _broken(request, attempt, error)
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
        """Its trajectories; raises PolicyLostError when inference broke on it twice."""
        began = time.monotonic()
        try:
            return await self._episode(request, attempt, policy).run()
        except PolicyLostError as lost:
            # The caller waits for this and one whole episode, no longer.
            if time.monotonic() - began > request.episode.session_wait_seconds:
                raise lost.cause from None
            metrics.ATTEMPTS_BEGUN_AGAIN.inc()
            logger.warning(
                "an attempt lost a call of the policy and begins again",
                extra={"trajectory": f"{request.group_id}/t{attempt}", "error": str(lost)},
            )
        try:
            return await self._episode(request, attempt, policy).run()
        except PolicyLostError as lost:
            if isinstance(lost.cause, InternalError):
                raise
            raise lost.cause from None

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
