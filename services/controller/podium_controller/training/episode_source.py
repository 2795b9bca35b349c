"""Runs a job's episodes through the rollout service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podium.core.errors import PodiumError
from podium.core.skip_reasons import (
    ENVIRONMENT_UNAVAILABLE,
    EPISODES_LOST,
    EPISODES_WERE_LOST,
    GROUP_REFUSED,
    NO_ENVIRONMENT_ANSWERS,
)
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import GroupKey, Rollout
from podium_controller.domain.staleness import oldest_version
from podium_controller.domain.uncollected import broke, failed_attempts, refuses
from podium_controller.pools.pools import Pool
from podium_controller.training.recovery import Recovery, is_transient
from podium_controller.training.reporter import Reporter
from podium_controller.training.serving import Serving

# How often a group is played that loses its environment under all of its attempts: a reply of the
# policy, the same each time, may be what ends it.
_TRIES = 3


@dataclass(frozen=True)
class _Collected:
    trajectories: list[trajectory_pb2.Trajectory]
    skip_reason: str = ""


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

        Where it cannot be collected for what is true of it alone, its attempts are failures that
        say so; it is skipped with its reason, but where the rollout service broke on it. `begins`
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
        group = self._group(request, await self._recovered(request, begins))
        sampled = oldest_version(group, key.job_id)
        if sampled is not None:
            await self.serving.check(sampled, served)
        return group

    async def without_scenario(
        self, key: GroupKey, group_id: str, attempts: int, error: JobFailedError
    ) -> trajectory_pb2.Group:
        """A group of an environment that has not been there to say what it has: skipped."""
        request = rollout_pb.CollectGroupRequest(
            group_id=group_id, job_id=key.job_id, step=key.step, attempts=attempts
        )
        return self._group(request, await self._unavailable(request, error))

    async def scenarios(self, split: str, limit: int = 0) -> list[trajectory_pb2.Scenario]:
        """What its environment has, at least one; waits for it as a group does.

        Raises:
            JobFailedError: NO_SCENARIOS; ENVIRONMENT_UNAVAILABLE: it stays away for too long.
        """
        found = await self.recovery.run(
            "rollout",
            lambda: self.rollout.scenarios(self.environment, split, limit),
            self.is_there,
            environment=self._title,
        )
        if not found:
            raise JobFailedError(
                f"environment {self.environment.name!r} has no scenarios in the split {split!r}",
                reason="NO_SCENARIOS",
            )
        return found

    def _group(
        self, request: rollout_pb.CollectGroupRequest, collected: _Collected
    ) -> trajectory_pb2.Group:
        for trajectory in collected.trajectories:
            trajectory.environment = self.name
        return trajectory_pb2.Group(
            id=request.group_id,
            job_id=request.job_id,
            step=request.step,
            scenario=request.scenario,
            trajectories=collected.trajectories,
            skip_reason=collected.skip_reason,
        )

    @property
    def is_lost(self) -> bool:
        """Whether its environment stayed away for as long as the job waits, and is not back."""
        return self.recovery.has_given_up(self._title)

    @property
    def _title(self) -> str:
        return self.name or self.environment.name

    async def _recovered(
        self, request: rollout_pb.CollectGroupRequest, begins: Callable[[], None]
    ) -> _Collected:
        losses = 0

        async def once() -> _Collected:
            nonlocal losses
            try:
                return await self._collect(request, begins)
            except PodiumError as error:
                losses += error.reason == EPISODES_WERE_LOST
                if losses < _TRIES or error.reason != EPISODES_WERE_LOST:
                    raise
                what = f"lost its environment under all attempts {losses} times"
                await self._tell_skipped(request, what, error)
                return _Collected(failed_attempts(request, error, error.reason), EPISODES_LOST)

        try:
            return await self.recovery.run("rollout", once, self._rebuild, environment=self._title)
        except JobFailedError as error:
            if error.reason != NO_ENVIRONMENT_ANSWERS:
                raise
            return await self._unavailable(request, error)

    async def _unavailable(
        self, request: rollout_pb.CollectGroupRequest, error: JobFailedError
    ) -> _Collected:
        await self._tell_skipped(request, "had no environment", error)
        return _Collected(failed_attempts(request, error, error.reason), ENVIRONMENT_UNAVAILABLE)

    async def _collect(
        self, request: rollout_pb.CollectGroupRequest, begins: Callable[[], None]
    ) -> _Collected:
        # Inside the recovery: who waits for a lost service keeps nobody from the pool.
        async with self.pool.fair_share.share(
            request.job_id, self.project, request.attempts, self.reporter.held
        ):
            begins()
            try:
                return _Collected(await self.rollout.collect(request))
            except PodiumError as error:
                if broke(error):
                    await self._tell_skipped(request, "could not be collected", error)
                    return _Collected(failed_attempts(request, error))
                if is_transient(error) or not refuses(error):
                    raise
                await self._tell_skipped(request, "was refused", error)
                return _Collected(failed_attempts(request, error, error.reason), GROUP_REFUSED)

    async def _tell_skipped(
        self, request: rollout_pb.CollectGroupRequest, what: str, error: PodiumError
    ) -> None:
        await self.reporter.warn(
            f"group {request.group_id} is skipped, for it {what}: {error.message}", request.step
        )

    async def is_there(self) -> bool:
        """Asks whether a rollout service answers again; none has a state that it could lose."""
        await self.rollout.environments()
        return False

    async def _rebuild(self) -> bool:
        await self.is_there()
        return await self.serving.reload()
