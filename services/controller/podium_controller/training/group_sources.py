"""Where a job's training groups come from: the rollout service, or the job's client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from podium.core.contract.rollout import attempts_allowed
from podium.core.errors import InternalError
from podium.core.skip_reasons import NO_ENVIRONMENT_ANSWERS
from podium.jobs.v1 import job_service_pb2 as events_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

from podium_controller.domain.errors import JobFailedError, JobIdleError
from podium_controller.domain.identifiers import drawn_group, training_group
from podium_controller.domain.ports import GroupKey, Ledger
from podium_controller.training.draws import Draw
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.mixture import Mixture
from podium_controller.training.scenario_order import ScenarioOrder

EpisodeScenarios: TypeAlias = tuple[EpisodeSource, ScenarioOrder, ScenarioOrder]
"""An environment, the order of its scenarios, and their order as stand-ins for others.

A stand-in has an order of its own, so that the scenarios of coming steps do not depend on how
many groups of this one could not teach.
"""

_WAIT_SECONDS = 3600.0
# Of a client that ends or is gone the ledger says so at once: how soon it is asked again.
_AGAIN_SECONDS = 1.0


class GroupSource(Protocol):
    """Gives the groups of a step, unscored."""

    renewable: bool
    """Whether a group that was of no use can be had once more."""

    def is_lost(self, step: int) -> bool:
        """Whether none of the step's environments answers, for longer than the job waits."""

    async def count(self, step: int) -> int:
        """How many groups the step has; waits until that is known."""

    async def sample(self, key: GroupKey, origin: int, redrawn: int = 0) -> trajectory_pb2.Group:
        """A group that the ledger does not have; `origin` is the one that it stands for.

        One of the step's first `count` stands for itself. `redrawn` says how often it was drawn
        and could not be collected at all, for which another scenario is to be had.
        """


class RolloutGroups:
    """Groups of the job's environments, sampled when they are asked for."""

    renewable = True

    def __init__(
        self,
        job_id: str,
        rollout: spec_pb2.RolloutSpec,
        sources: Sequence[EpisodeScenarios],
        mixture: Mixture,
    ) -> None:
        """`sources` are those that `mixture` draws from."""
        self._job_id = job_id
        self._rollout = rollout
        self._sources = sources
        self._mixture = mixture

    def is_lost(self, step: int) -> bool:
        """See `GroupSource`."""
        return _are_lost(self._sources, self._mixture, step)

    async def count(self, step: int) -> int:
        """See `GroupSource`."""
        return self._rollout.groups_per_step

    async def sample(self, key: GroupKey, origin: int, redrawn: int = 0) -> trajectory_pb2.Group:
        """See `GroupSource`."""
        rollout = self._rollout
        drawn, position = self._mixture.redraw(key.step, origin, redrawn)
        source, order, others = self._sources[drawn]
        group_id = training_group(self._job_id, key.step, key.position)
        try:
            await order.listed()
            await others.listed()
        except JobFailedError as error:
            if error.reason != NO_ENVIRONMENT_ANSWERS:
                raise
            return await source.without_scenario(key, group_id, rollout.group_size, error)
        scenario = order.at(position)
        if key.position != origin:
            scenario = others.at(self._stands_at(key) + redrawn)
        return await source.collect(
            key,
            group_id,
            scenario,
            rollout.group_size,
            policy_pb2.PolicyRef(
                job=self._job_id, version=key.step - 1 if rollout.max_staleness == 0 else None
            ),
            rollout.sampling,
        )

    def _stands_at(self, key: GroupKey) -> int:
        """Which of the job's stand-ins it is; every step has places for all that it may need."""
        drawn = self._rollout.groups_per_step
        places = attempts_allowed(self._rollout) - drawn
        return (key.step - 1) * places + key.position - drawn


def _are_lost(sources: Sequence[EpisodeScenarios], mixture: Mixture, step: int) -> bool:
    return all(sources[index][0].is_lost for index in mixture.taking_part(step))


class DrawnGroups:
    """Groups of the job's environments that are drawn for no step; see `Draws`."""

    def __init__(
        self,
        job_id: str,
        rollout: spec_pb2.RolloutSpec,
        sources: Sequence[EpisodeScenarios],
        mixture: Mixture,
    ) -> None:
        """`sources` are those that `mixture` draws from."""
        self._job_id = job_id
        self._rollout = rollout
        self._sources = sources
        self._mixture = mixture

    def is_lost(self, step: int) -> bool:
        """See `GroupSource`."""
        return _are_lost(self._sources, self._mixture, step)

    async def sample(
        self, draw: Draw, step: int, begins: Callable[[], None]
    ) -> trajectory_pb2.Group:
        """A group, begun while `step` is the next that takes groups; see `EpisodeSource`."""
        source, order, _ = self._sources[draw.source]
        key, group_id = (
            GroupKey(self._job_id, step, draw.number),
            drawn_group(self._job_id, draw.number),
        )
        try:
            await order.listed()
        except JobFailedError as error:
            if error.reason != NO_ENVIRONMENT_ANSWERS:
                raise
            return await source.without_scenario(key, group_id, self._rollout.group_size, error)
        return await source.collect(
            key,
            group_id,
            order.at(draw.position),
            self._rollout.group_size,
            policy_pb2.PolicyRef(job=self._job_id),
            self._rollout.sampling,
            begins,
        )


class ClientGroups:
    """Groups that the job's client submits; see `store.batches`."""

    renewable = False

    def __init__(self, job_id: str, client: spec_pb2.ClientSpec, ledger: Ledger) -> None:
        self._job_id = job_id
        self._client = client
        self._ledger = ledger

    def is_lost(self, step: int) -> bool:
        """See `GroupSource`: there is none to be lost."""
        return False

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
            if found.finishing or found.gone:
                # What follows on that is `arrival`'s to say, when the step before has trained.
                await asyncio.sleep(_AGAIN_SECONDS)

    async def sample(self, key: GroupKey, origin: int, redrawn: int = 0) -> trajectory_pb2.Group:
        """See `GroupSource`: a batch is stored whole, so nothing is ever missing."""
        raise InternalError(f"group {key.position} of step {key.step} is not in the batch")
