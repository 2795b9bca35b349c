"""Runs a job's episodes through the rollout service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podium.core.errors import PodiumError
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

from podium_controller.domain.ports import GroupKey, Rollout
from podium_controller.domain.staleness import oldest_version
from podium_controller.domain.uncollected import failed_attempts, is_of_one_group
from podium_controller.pools.pools import Pool
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import Reporter
from podium_controller.training.serving import Serving


@dataclass(frozen=True)
class EpisodeSource:
    """Where a job's episodes come from."""

    rollout: Rollout
    pool: Pool
    project: str
    reporter: Reporter
    serving: Serving
    recovery: Recovery
    environment: spec_pb2.EnvironmentSpec
    seed: int
    episode: spec_pb2.EpisodeSpec
    name: str = ""
    """Of the environment, among several of the job's."""

    async def collect(
        self,
        key: GroupKey,
        group_id: str,
        scenario: trajectory_pb2.Scenario,
        attempts: int,
        policy: policy_pb2.PolicyRef,
        sampling: policy_pb2.SamplingParams,
        begins: Callable[[], None] = lambda: None,
    ) -> trajectory_pb2.Group:
        """One group, however often its services are lost on the way.

        Where the rollout service breaks on it, its attempts are failures that say so. `begins`
        is called whenever its turn at the pool has come.
        """
        request = rollout_pb.CollectGroupRequest(
            group_id=group_id,
            job_id=key.job_id,
            step=key.step,
            environment=self.environment,
            scenario=scenario,
            attempts=attempts,
            policy=policy,
            sampling=sampling,
            episode=self.episode,
            seed=self.seed,
            pool=self.pool.name,
        )
        served = self.serving.served
        trajectories = await self.recovery.run(
            "rollout", lambda: self._collect(request, begins), self._rebuild
        )
        for trajectory in trajectories:
            trajectory.environment = self.name
        group = trajectory_pb2.Group(
            id=group_id,
            job_id=key.job_id,
            step=key.step,
            scenario=scenario,
            trajectories=trajectories,
        )
        sampled = oldest_version(group, key.job_id)
        if sampled is not None:
            await self.serving.check(sampled, served)
        return group

    async def _collect(
        self, request: rollout_pb.CollectGroupRequest, begins: Callable[[], None]
    ) -> list[trajectory_pb2.Trajectory]:
        # Inside the recovery: who waits for a lost service keeps nobody from the pool.
        async with self.pool.fair_share.share(
            request.job_id, self.project, request.attempts, self.reporter.held
        ):
            begins()
            try:
                return await self.rollout.collect(request)
            except PodiumError as error:
                if not is_of_one_group(error):
                    raise
                await self.reporter.warn(
                    f"group {request.group_id} is skipped, for it could not be collected:"
                    f" {error.message}",
                    request.step,
                )
                return failed_attempts(request, error)

    async def is_there(self) -> bool:
        """Asks whether a rollout service answers again; none has a state that it could lose."""
        await self.rollout.environments()
        return False

    async def _rebuild(self) -> bool:
        await self.is_there()
        return await self.serving.reload()
