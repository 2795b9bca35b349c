"""Where one job's episodes come from: its environments, and what they have to attempt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeAlias

from podium.core.job_environments import environments_of, name_of
from podium.core.skip_reasons import NO_ENVIRONMENT_ANSWERS
from podium.core.tasks import run_all
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord, Peers
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.evaluator import evaluation_episode
from podium_controller.training.group_sources import EpisodeScenarios
from podium_controller.training.mixture import Mixture
from podium_controller.training.reporter import Reporter
from podium_controller.training.scenario_order import LateScenarioOrder, ScenarioOrder

_Listed: TypeAlias = list[trajectory_pb2.Scenario] | JobFailedError
"""What an environment has to attempt, or that it stayed away."""


class Sources:
    """Of one job."""

    def __init__(
        self,
        job: JobRecord,
        peers: Peers,
        source: EpisodeSource,
        reporter: Reporter,
        control: StopSignals,
    ) -> None:
        """`source` is of the job's one environment; of several each has one like it."""
        self._job = job
        self._spec = job.spec
        self._peers = peers
        self._source = source
        self._reporter = reporter
        self._control = control

    async def place(self) -> None:
        """Where the job's environment is an image: at the address where it runs now."""
        if not self._spec.environment.image:
            return
        async with self._reporter.waiting("the environment") as on_wait:
            placing = self._peers.environments.place(self._job, on_wait)
            address = await self._control.unless_paused(placing)
        placed = spec_pb2.EnvironmentSpec()
        placed.CopyFrom(self._spec.environment)
        placed.address, placed.image = address, ""
        placed.ClearField("replicas")
        self._source = replace(self._source, environment=placed)

    async def for_training(self) -> list[EpisodeScenarios]:
        """Each environment, with the orders of its scenarios.

        Those that stay away for as long as the job waits are asked again with their groups.

        Raises:
            JobFailedError: ENVIRONMENT_UNAVAILABLE: all of them do.
        """
        sources = self._of()
        listed = await run_all([self._listed(each) for each in sources])
        errors = [each for each in listed if isinstance(each, JobFailedError)]
        if len(errors) == len(sources):
            raise errors[0]
        return [
            (source, *self._orders(source, found))
            for source, found in zip(sources, listed, strict=True)
        ]

    async def _listed(self, source: EpisodeSource) -> _Listed:
        try:
            return await source.scenarios(source.environment.split)
        except JobFailedError as error:
            if error.reason != NO_ENVIRONMENT_ANSWERS:
                raise
            return error

    def _orders(self, source: EpisodeSource, found: _Listed) -> tuple[ScenarioOrder, ScenarioOrder]:
        def order(seed: int | str) -> ScenarioOrder:
            if isinstance(found, JobFailedError):
                return LateScenarioOrder(lambda: source.scenarios(source.environment.split), seed)
            return ScenarioOrder(found, seed)

        return order(self._spec.seed), order(f"{self._spec.seed}/again")

    async def for_evaluation(self) -> list[tuple[EpisodeSource, trajectory_pb2.Scenario]]:
        """The scenarios that the job is evaluated on, each with its environment.

        Raises:
            JobFailedError: ENVIRONMENT_UNAVAILABLE: one of them stays away for too long.
        """
        evaluation = self._spec.evaluation
        episode = evaluation_episode(self._spec)
        return [
            (replace(source, episode=episode), scenario)
            for source in self._of(evaluation.environments)
            for scenario in await source.scenarios(evaluation.split, evaluation.scenarios)
        ]

    def mixture(self) -> Mixture:
        """Of the environments."""
        return Mixture(
            environments_of(self._spec), self._spec.seed, self._spec.rollout.groups_per_step
        )

    def _of(self, names: Collection[str] = ()) -> list[EpisodeSource]:
        """One for each of the job's environments, or of those of them with these names."""
        if not self._spec.environments:
            return [self._source]
        return [
            replace(self._source, environment=each.environment, name=name_of(each))
            for each in self._spec.environments
            if not names or name_of(each) in names
        ]
