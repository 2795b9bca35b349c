"""Where one job's episodes come from: its environments, and what they have to attempt."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from podium.core.job_environments import environments_of, name_of
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord, Peers
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.training.episode_source import EpisodeSource
from podium_controller.training.evaluator import evaluation_episode
from podium_controller.training.group_sources import EpisodeScenarios
from podium_controller.training.mixture import Mixture
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import Reporter
from podium_controller.training.scenario_order import ScenarioOrder


class Sources:
    """Of one job."""

    def __init__(
        self,
        job: JobRecord,
        peers: Peers,
        source: EpisodeSource,
        recovery: Recovery,
        reporter: Reporter,
        control: StopSignals,
    ) -> None:
        """`source` is of the job's one environment; of several each has one like it."""
        self._job = job
        self._spec = job.spec
        self._peers = peers
        self._source = source
        self._recovery = recovery
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
        """Each environment, with the orders of its scenarios."""
        found = []
        for each in self._of():
            scenarios = await self._scenarios(each, each.environment.split)
            seed = self._spec.seed
            order, others = (
                ScenarioOrder(scenarios, seed),
                ScenarioOrder(scenarios, f"{seed}/again"),
            )
            found.append((each, order, others))
        return found

    async def for_evaluation(self) -> list[tuple[EpisodeSource, trajectory_pb2.Scenario]]:
        """The scenarios that the job is evaluated on, each with its environment."""
        evaluation = self._spec.evaluation
        episode = evaluation_episode(self._spec)
        return [
            (replace(source, episode=episode), scenario)
            for source in self._of(evaluation.environments)
            for scenario in await self._scenarios(source, evaluation.split, evaluation.scenarios)
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

    async def _scenarios(
        self, source: EpisodeSource, split: str, limit: int = 0
    ) -> list[trajectory_pb2.Scenario]:
        """Of one environment; CreateJob may not have been able to ask for them."""
        environment = source.environment
        found = await self._recovery.run(
            "rollout",
            lambda: self._peers.rollout.scenarios(environment, split, limit),
            source.is_there,
        )
        if not found:
            raise JobFailedError(
                f"environment {environment.name!r} has no scenarios in the split {split!r}",
                reason="NO_SCENARIOS",
            )
        return found
