"""Where a job's training groups come from: the rollout service, or the job's client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from podium.core.errors import InternalError
from podium.jobs.v1 import job_service_pb2 as events_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

from podium_controller.domain.errors import JobIdleError
from podium_controller.domain.identifiers import training_group
from podium_controller.domain.ports import GroupKey, Ledger
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.mixture import Mixture
from podium_controller.training.scenario_order import ScenarioOrder

_WAIT_SECONDS = 3600.0


class GroupSource(Protocol):
    """Gives the groups of a step, unscored."""

    renewable: bool
    """Whether a group that was of no use can be had once more."""

    async def count(self, step: int) -> int:
        """How many groups the step has; waits until that is known."""

    async def sample(self, key: GroupKey) -> trajectory_pb2.Group:
        """A group that the ledger does not have."""


class RolloutGroups:
    """Groups of the job's environments, sampled when they are asked for."""

    renewable = True

    def __init__(
        self,
        job_id: str,
        rollout: spec_pb2.RolloutSpec,
        sources: Sequence[tuple[EpisodeSource, ScenarioOrder]],
        mixture: Mixture,
    ) -> None:
        """`sources` are those that `mixture` draws from, each with the order of its scenarios."""
        self._job_id = job_id
        self._rollout = rollout
        self._sources = sources
        self._mixture = mixture

    async def count(self, step: int) -> int:
        """See `GroupSource`."""
        return self._rollout.groups_per_step

    async def sample(self, key: GroupKey) -> trajectory_pb2.Group:
        """See `GroupSource`."""
        rollout = self._rollout
        drawn, position = self._mixture.draw(key.step, key.position)
        source, order = self._sources[drawn]
        return await source.collect(
            key,
            training_group(self._job_id, key.step, key.position),
            order.at(position),
            rollout.group_size,
            policy_pb2.PolicyRef(
                job=self._job_id, version=key.step - 1 if rollout.max_staleness == 0 else None
            ),
            rollout.sampling,
        )


class ClientGroups:
    """Groups that the job's client submits; see `store.batches`."""

    renewable = False

    def __init__(self, job_id: str, client: spec_pb2.ClientSpec, ledger: Ledger) -> None:
        self._job_id = job_id
        self._client = client
        self._ledger = ledger

    async def arrival(self, step: int) -> bool:
        """Waits for a step's batch; False when the client says that none will come.

        Raises:
            JobIdleError: the client was silent for the job's idle time, or is gone while another
                job waits for a place.
        """
        seconds = self._client.idle_seconds
        found = await self._ledger.await_submission(self._job_id, step, seconds)
        if not found.groups and not found.finishing:
            if found.gone:
                await self._ledger.add_event(
                    self._job_id,
                    events_pb.EVENT_TYPE_WARNING,
                    "the job's client is gone and another job waits for its place: the job pauses"
                    " until its client is back",
                    step,
                )
            raise JobIdleError
        return found.groups > 0

    async def count(self, step: int) -> int:
        """See `GroupSource`."""
        while True:
            found = await self._ledger.await_submission(self._job_id, step, _WAIT_SECONDS)
            if found.groups:
                return found.groups

    async def sample(self, key: GroupKey) -> trajectory_pb2.Group:
        """See `GroupSource`: a batch is stored whole, so nothing is ever missing."""
        raise InternalError(f"group {key.position} of step {key.step} is not in the batch")
