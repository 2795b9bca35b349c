"""All attempts of a group at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from podium.core.errors import InvalidArgumentError, ResourceExhaustedError, Violation
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import trajectory_pb2 as pb

from podium_rollout.domain import metrics
from podium_rollout.domain.episode import Episode
from podium_rollout.domain.ports import Environments, Policy


class GroupRunner:
    """Runs groups, a bounded number at once."""

    def __init__(
        self, environments: Environments, policies: Mapping[str, Policy], max_groups: int
    ) -> None:
        """One a process. `policies` are the pools by name; the first is for who names none."""
        self._environments = environments
        self._policies = policies
        self._max_groups = max_groups
        self._running = 0

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> AsyncGenerator[pb.Trajectory]:
        """Each trajectory as its episode ends. Closing the iterator cancels the rest.

        Raises:
            ResourceExhaustedError: too many groups at once.
            InvalidArgumentError: sampling that cannot train, or a player or a
                pool that there is not.
            PodiumError: an attempt's policy could not act; the others are
                cancelled.
        """
        check_sampling(request)
        policy = self._policy(request.pool)
        if self._running >= self._max_groups:
            raise ResourceExhaustedError(
                f"{self._max_groups} groups are being collected already", reason="TOO_MANY_GROUPS"
            )
        episodes = [
            Episode(request, attempt, self._environments, policy)
            for attempt in range(request.attempts)
        ]
        self._running += 1
        metrics.GROUPS_IN_FLIGHT.set(self._running)
        tasks = {
            asyncio.create_task(episode.run(), name=f"{request.group_id}/t{attempt}")
            for attempt, episode in enumerate(episodes)
        }
        pending = set(tasks)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    for trajectory in task.result():
                        yield trajectory
        finally:
            for task in tasks:
                task.cancel()
            # All of them: when inference dies, several attempts have raised at once.
            await asyncio.gather(*tasks, return_exceptions=True)
            self._running -= 1
            metrics.GROUPS_IN_FLIGHT.set(self._running)

    def _policy(self, pool: str) -> Policy:
        name = pool or next(iter(self._policies))
        if name not in self._policies:
            allowed = ", ".join(self._policies)
            raise InvalidArgumentError(
                violations=[Violation("pool", f"got {pool!r}; allowed are {allowed}")]
            )
        return self._policies[name]


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
