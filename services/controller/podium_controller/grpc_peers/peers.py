"""The other services over gRPC."""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
from podium.core.errors import DataLossError, NotFoundError, Violation
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.judge.v1 import judge_service_pb2_grpc as judge_grpc
from podium.kit.rpc import connect_peer
from podium.kit.rpc.members import Members, split_name
from podium.kit.rpc.pools import TrainerPoolSetting
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.rollout.v1 import rollout_service_pb2_grpc as rollout_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import Environments, JobRecord, Peers, SharedTrainer, Trainers
from podium_controller.domain.uncollected import INCOMPLETE
from podium_controller.domain.waits import OnWait
from podium_controller.grpc_peers.errors import peer_errors
from podium_controller.grpc_peers.inference import GrpcInference
from podium_controller.grpc_peers.scaled_trainer import ScaledGrpcTrainer
from podium_controller.grpc_peers.trainers import GrpcTrainer, SharedGrpcTrainer
from podium_controller.pools.fair_share import FairShare
from podium_controller.pools.pooled_trainers import NoTrainers, PooledTrainers
from podium_controller.pools.pools import Pool, Pools
from podium_controller.pools.projects import Projects
from podium_controller.pools.trainer_pools import TrainerPool, TrainerPools
from podium_controller.settings import Settings

_PAGE = 1000


@asynccontextmanager
async def connected(settings: Settings, trainer_pools: TrainerPools) -> AsyncIterator[Peers]:
    """Channels to all but the pools, closed at the end. Nothing needs to answer yet."""
    async with AsyncExitStack() as stack:
        channels = {}
        for name in ("rollout", "judge", "registry"):
            channels[name] = connect_peer(settings, getattr(settings, f"{name}_address"))
            stack.push_async_callback(channels[name].close)
        trainers, environments = await stack.enter_async_context(_workplace(settings))
        yield Peers(
            rollout=GrpcRollout(channels["rollout"], settings.collect_slack_seconds),
            judge=GrpcJudge(channels["judge"], settings.judge_seconds),
            trainers=PooledTrainers(trainers, trainer_pools),
            environments=environments,
            registry=GrpcRegistry(channels["registry"]),
        )


@asynccontextmanager
async def connected_pools(settings: Settings, projects: Projects) -> AsyncIterator[Pools]:
    """The same of the inference pools."""
    async with AsyncExitStack() as stack:
        found = []
        for name, address in settings.pool_addresses().items():
            members = Members(address, functools.partial(connect_peer, settings))
            stack.push_async_callback(members.close)
            fair_share = FairShare(name, settings.pool_episodes, projects)
            inference = GrpcInference(members, settings.publish_seconds, settings.teacher_seconds)
            found.append(Pool(name, inference, fair_share))
        pools = Pools(found)
        stack.push_async_callback(pools.close)
        yield pools


@asynccontextmanager
async def connected_trainer_pools(settings: Settings) -> AsyncIterator[TrainerPools]:
    """The same of the trainer pools."""
    async with AsyncExitStack() as stack:
        found = []
        for name, setting in settings.trainer_pools.items():
            trainer, hang_up = _shared_trainer(settings, setting)
            stack.push_async_callback(hang_up)
            pool = TrainerPool(
                name,
                trainer,
                setting.base_model,
                setting.max_jobs,
                setting.gpus,
                setting.scales_to_zero,
            )
            found.append(pool)
        pools = TrainerPools(found)
        stack.push_async_callback(pools.close)
        yield pools


def _shared_trainer(
    settings: Settings, setting: TrainerPoolSetting
) -> tuple[SharedTrainer, Callable[[], Awaitable[None]]]:
    """A trainer pool's, and what closes its channels."""
    name = split_name(setting.address) if setting.scales_to_zero else None
    if name is None:
        channel = connect_peer(settings, setting.address)
        return SharedGrpcTrainer(channel, settings), channel.close
    host, port = name

    def dial(address: str) -> tuple[grpc.aio.Channel, SharedTrainer]:
        # By a pod's own address, which no certificate names.
        channel = connect_peer(settings, address, host)
        return channel, SharedGrpcTrainer(channel, settings)

    scaled = ScaledGrpcTrainer(host, port, dial)
    return scaled, scaled.hang_up


@asynccontextmanager
async def _workplace(settings: Settings) -> AsyncIterator[tuple[Trainers, Environments]]:
    if settings.trainer_template is None and not settings.trainer_address:
        yield NoTrainers(), NoEnvironments()
        return
    if settings.trainer_template is None:
        channel = connect_peer(settings, settings.trainer_address)
        try:
            trainer = FixedTrainer(GrpcTrainer(channel, settings), settings.trainer_gpus)
            yield trainer, NoEnvironments()
        finally:
            await channel.close()
        return

    def dial_trainer(address: str) -> tuple[grpc.aio.Channel, GrpcTrainer]:
        # By a pod's own address, which no certificate names.
        channel = connect_peer(settings, address, settings.trainer_server_name)
        return channel, GrpcTrainer(channel, settings)

    # The Kubernetes client loads in seconds, and not at all on a laptop.
    cluster = await asyncio.to_thread(importlib.import_module, "podium_controller.cluster.trainers")
    async with cluster.cluster_workplace(settings, dial_trainer) as (trainers, environments):
        yield trainers, environments or NoEnvironments()


class GrpcRollout:
    """See `ports.Rollout`."""

    def __init__(self, channel: grpc.aio.Channel, slack_seconds: float) -> None:
        self._stub: rollout_grpc.RolloutServiceAsyncStub = rollout_grpc.RolloutServiceStub(channel)
        self._slack_seconds = slack_seconds

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> list[trajectory_pb2.Trajectory]:
        """See `ports.Rollout`."""
        episode = request.episode
        # Waiting for a session, the episode, and its score.
        seconds = episode.session_wait_seconds + episode.timeout_seconds
        seconds += episode.step_timeout_seconds + self._slack_seconds
        call = self._stub.CollectGroup(request, timeout=seconds)
        found: dict[tuple[int, str], trajectory_pb2.Trajectory] = {}
        try:
            with peer_errors("rollout"):
                async for response in call:
                    trajectory = response.trajectory
                    found[trajectory.attempt, trajectory.side] = trajectory
        finally:
            call.cancel()
        attempts = {attempt for attempt, _ in found}
        if attempts != set(range(request.attempts)):
            raise DataLossError(
                f"rollout ended group {request.group_id} with attempts {sorted(attempts)};"
                f" {request.attempts} were asked for",
                reason=INCOMPLETE,
            )
        return [found[key] for key in sorted(found)]

    async def scenarios(
        self, environment: spec_pb2.EnvironmentSpec, split: str, limit: int = 0
    ) -> list[trajectory_pb2.Scenario]:
        """See `ports.Rollout`."""
        request = rollout_pb.ListScenariosRequest(
            environment=environment, split=split, page_size=min(limit, _PAGE) if limit else _PAGE
        )
        found: list[trajectory_pb2.Scenario] = []
        while True:
            with peer_errors("rollout"):
                response = await self._stub.ListScenarios(request)
            found += response.scenarios
            request.page_token = response.next_page_token
            if not request.page_token or (limit and len(found) >= limit):
                return found[:limit] if limit else found

    async def environments(self) -> list[rollout_pb.EnvironmentInfo]:
        """See `ports.Rollout`."""
        with peer_errors("rollout"):
            response = await self._stub.ListEnvironments(rollout_pb.ListEnvironmentsRequest())
        return list(response.environments)


class GrpcJudge:
    """See `ports.Judge`."""

    def __init__(self, channel: grpc.aio.Channel, seconds: float) -> None:
        self._stub: judge_grpc.JudgeServiceAsyncStub = judge_grpc.JudgeServiceStub(channel)
        self._seconds = seconds

    async def check(self, reward: spec_pb2.RewardSpec, base_model: str) -> None:
        """See `ports.Judge`."""
        request = judge_pb.CheckRewardRequest(reward=reward, base_model=base_model)
        with peer_errors("judge"):
            await self._stub.CheckReward(request)

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        """See `ports.Judge`."""
        with peer_errors("judge"):
            return await self._stub.ScoreGroup(request, timeout=self._seconds)


class FixedTrainer:
    """See `ports.Trainers`: the one at an address, for every job."""

    own = 1

    def __init__(self, trainer: GrpcTrainer, gpus: int = 0) -> None:
        self._trainer = trainer
        self._gpus = gpus

    async def violations(self, spec: spec_pb2.TrainerSpec) -> list[Violation]:
        """See `ports.Trainers`."""
        asked = {
            "nodes": (spec.nodes if spec.nodes > 1 else 0, "1"),
            "gpus_per_node": (spec.gpus_per_node, "none"),
            "queue": (spec.queue, "none"),
            "priority_class": (spec.priority_class, "none"),
        }
        return [
            Violation(
                f"job.spec.trainer.{field}",
                f"got {got!r}; allowed is {allowed}: this installation has one trainer for all"
                " jobs and places none",
            )
            for field, (got, allowed) in asked.items()
            if got
        ]

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """See `ports.Trainers`. What its operator says."""
        return self._gpus

    def of(self, job: JobRecord) -> GrpcTrainer:
        """See `ports.Trainers`."""
        return self._trainer

    async def retain(self, job_ids: Collection[str]) -> None:
        """See `ports.Trainers`. It stays."""


class NoEnvironments:
    """See `ports.Environments`: none is placed here."""

    async def violations(self, spec: spec_pb2.EnvironmentSpec) -> list[Violation]:
        """See `ports.Environments`."""
        return [
            Violation(
                "job.spec.environment.image",
                f"got {spec.image!r}; allowed is none: this installation places no environments;"
                " serve it, and name its address",
            )
        ]

    async def place(self, job: JobRecord, on_wait: OnWait) -> str:
        """See `ports.Environments`."""
        (found,) = await self.violations(job.spec.environment)
        raise JobFailedError(str(found), reason="ENVIRONMENT_INVALID")

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Environments`. There is none."""

    async def retain(self, job_ids: Collection[str]) -> None:
        """See `ports.Environments`. There are none."""


class GrpcRegistry:
    """See `ports.Registry`."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: registry_grpc.RegistryServiceAsyncStub = registry_grpc.RegistryServiceStub(
            channel
        )

    async def version(self, model: str, version: int) -> registry_pb.Version | None:
        """See `ports.Registry`."""
        return await self._get(registry_pb.GetVersionRequest(model=model, version=version))

    async def alias(self, model: str, alias: str) -> registry_pb.Version | None:
        """See `ports.Registry`."""
        return await self._get(registry_pb.GetVersionRequest(model=model, alias=alias))

    async def resumable(self, model: str, version: int) -> registry_pb.Version | None:
        """See `ports.Registry`."""
        return await self._get(registry_pb.GetVersionRequest(model=model, resumable=version))

    async def fork(self, model: str, version: int, name: str) -> None:
        """See `ports.Registry`."""
        if await self.version(name, version) is not None:
            return
        source = await self.version(model, version)
        if source is None:
            raise NotFoundError(f"{model}@{version} is gone", reason="VERSION_NOT_FOUND")
        manifest = source.manifest
        manifest.model = name
        manifest.files.extend(source.state_files)
        del manifest.parents[:]
        manifest.parents.add(model=model, version=version)
        del manifest.group_ids[:]
        request = registry_pb.CreateVersionRequest(
            manifest=manifest, request_id=f"{name}/fork/{version}"
        )
        with peer_errors("registry"):
            await self._stub.CreateVersion(request)

    async def set_alias(self, model: str, alias: str, version: int, expected: int) -> None:
        """See `ports.Registry`."""
        request = registry_pb.SetAliasRequest(
            model=model, alias=alias, version=version, expected_version=expected
        )
        with peer_errors("registry"):
            await self._stub.SetAlias(request)

    async def record_evaluation(
        self, model: str, version: int, metrics: Mapping[str, float]
    ) -> None:
        """See `ports.Registry`."""
        request = registry_pb.RecordEvaluationRequest(model=model, version=version, metrics=metrics)
        with peer_errors("registry"):
            await self._stub.RecordEvaluation(request)

    async def apply_retention(
        self,
        model: str,
        keep_last: int,
        keep_best: int,
        metric: str,
        lower_is_better: bool,
        keep_versions: Sequence[int],
    ) -> None:
        """See `ports.Registry`."""
        request = registry_pb.ApplyRetentionRequest(
            model=model,
            keep_last=keep_last,
            keep_best=keep_best,
            metric=metric,
            lower_is_better=lower_is_better,
            keep_versions=keep_versions,
        )
        with peer_errors("registry"):
            await self._stub.ApplyRetention(request)

    async def _get(self, request: registry_pb.GetVersionRequest) -> registry_pb.Version | None:
        try:
            with peer_errors("registry"):
                return (await self._stub.GetVersion(request)).version
        except NotFoundError:
            return None
