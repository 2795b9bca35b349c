"""The five services over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import grpc
from podium.core.errors import DataLossError, NotFoundError
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.inference.v1 import inference_service_pb2_grpc as inference_grpc
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.judge.v1 import judge_service_pb2_grpc as judge_grpc
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.rollout.v1 import rollout_service_pb2_grpc as rollout_grpc
from podium.rpc import connect, rpc_errors
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.trainer.v1 import trainer_service_pb2_grpc as trainer_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.ports import Peers
from podium_controller.settings import Settings

_PAGE = 1000


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Peers]:
    """Channels to all five, closed at the end. Nothing needs to answer yet."""
    token = settings.peer_token()
    channels = {
        name: connect(
            getattr(settings, f"{name}_address"),
            token=token,
            max_message_bytes=settings.max_message_bytes,
        )
        for name in ("rollout", "judge", "trainer", "inference", "registry")
    }
    try:
        yield Peers(
            rollout=GrpcRollout(channels["rollout"], settings.collect_slack_seconds),
            judge=GrpcJudge(channels["judge"], settings.judge_seconds),
            trainer=GrpcTrainer(channels["trainer"], settings),
            inference=GrpcInference(channels["inference"], settings.publish_seconds),
            registry=GrpcRegistry(channels["registry"]),
        )
    finally:
        for channel in channels.values():
            await channel.close()


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
            with rpc_errors("rollout"):
                async for response in call:
                    trajectory = response.trajectory
                    found[trajectory.attempt, trajectory.side] = trajectory
        finally:
            call.cancel()
        attempts = {attempt for attempt, _ in found}
        if attempts != set(range(request.attempts)):
            raise DataLossError(
                f"rollout ended group {request.group_id} with attempts {sorted(attempts)};"
                f" {request.attempts} were asked for"
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
            with rpc_errors("rollout"):
                response = await self._stub.ListScenarios(request)
            found += response.scenarios
            request.page_token = response.next_page_token
            if not request.page_token or (limit and len(found) >= limit):
                return found[:limit] if limit else found

    async def environments(self) -> list[rollout_pb.EnvironmentInfo]:
        """See `ports.Rollout`."""
        with rpc_errors("rollout"):
            response = await self._stub.ListEnvironments(rollout_pb.ListEnvironmentsRequest())
        return list(response.environments)


class GrpcJudge:
    """See `ports.Judge`."""

    def __init__(self, channel: grpc.aio.Channel, seconds: float) -> None:
        self._stub: judge_grpc.JudgeServiceAsyncStub = judge_grpc.JudgeServiceStub(channel)
        self._seconds = seconds

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        """See `ports.Judge`."""
        with rpc_errors("judge"):
            return await self._stub.ScoreGroup(request, timeout=self._seconds)


class GrpcTrainer:
    """See `ports.Trainer`."""

    def __init__(self, channel: grpc.aio.Channel, settings: Settings) -> None:
        self._stub: trainer_grpc.TrainerServiceAsyncStub = trainer_grpc.TrainerServiceStub(channel)
        self._settings = settings

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        """See `ports.Trainer`."""
        with rpc_errors("trainer"):
            return await self._stub.Open(request, timeout=self._settings.open_seconds)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        """See `ports.Trainer`."""

        async def messages() -> AsyncIterator[trainer_pb.StepRequest]:
            yield trainer_pb.StepRequest(header=trainer_pb.StepHeader(job_id=job_id, step=step))
            for group in groups:
                yield trainer_pb.StepRequest(group=group)

        with rpc_errors("trainer"):
            return await self._stub.Step(messages(), timeout=self._settings.step_seconds)

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        """See `ports.Trainer`."""
        with rpc_errors("trainer"):
            return await self._stub.Save(request, timeout=self._settings.publish_seconds)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Trainer`."""
        with rpc_errors("trainer"):
            await self._stub.Close(trainer_pb.CloseRequest(job_id=job_id), timeout=seconds)


class GrpcInference:
    """See `ports.Inference`."""

    def __init__(self, channel: grpc.aio.Channel, load_seconds: float) -> None:
        self._stub: inference_grpc.InferenceServiceAsyncStub = inference_grpc.InferenceServiceStub(
            channel
        )
        self._load_seconds = load_seconds

    async def engine(self) -> inference_pb.GetEngineResponse:
        """See `ports.Inference`."""
        with rpc_errors("inference"):
            return await self._stub.GetEngine(inference_pb.GetEngineRequest())

    async def load(self, job_id: str, version: int) -> inference_pb.LoadPolicyResponse:
        """See `ports.Inference`."""
        request = inference_pb.LoadPolicyRequest(job=job_id, version=version)
        with rpc_errors("inference"):
            return await self._stub.LoadPolicy(request, timeout=self._load_seconds)

    async def unload(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Inference`."""
        request = inference_pb.UnloadPolicyRequest(job=job_id)
        with rpc_errors("inference"):
            await self._stub.UnloadPolicy(request, timeout=seconds or self._load_seconds)

    async def policies(self) -> list[inference_pb.LoadedPolicy]:
        """See `ports.Inference`."""
        request = inference_pb.ListPoliciesRequest(page_size=_PAGE)
        found: list[inference_pb.LoadedPolicy] = []
        while True:
            with rpc_errors("inference"):
                response = await self._stub.ListPolicies(request)
            found += response.policies
            request.page_token = response.next_page_token
            if not request.page_token:
                return found


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

    async def fork(self, model: str, version: int, name: str) -> None:
        """See `ports.Registry`."""
        if await self.version(name, version) is not None:
            return
        source = await self.version(model, version)
        if source is None:
            raise NotFoundError(f"{model}@{version} is gone", reason="VERSION_NOT_FOUND")
        manifest = source.manifest
        manifest.model = name
        del manifest.parents[:]
        manifest.parents.add(model=model, version=version)
        del manifest.group_ids[:]
        request = registry_pb.CreateVersionRequest(
            manifest=manifest, request_id=f"{name}/fork/{version}"
        )
        with rpc_errors("registry"):
            await self._stub.CreateVersion(request)

    async def set_alias(self, model: str, alias: str, version: int, expected: int) -> None:
        """See `ports.Registry`."""
        request = registry_pb.SetAliasRequest(
            model=model, alias=alias, version=version, expected_version=expected
        )
        with rpc_errors("registry"):
            await self._stub.SetAlias(request)

    async def record_evaluation(
        self, model: str, version: int, metrics: Mapping[str, float]
    ) -> None:
        """See `ports.Registry`."""
        request = registry_pb.RecordEvaluationRequest(model=model, version=version, metrics=metrics)
        with rpc_errors("registry"):
            await self._stub.RecordEvaluation(request)

    async def apply_retention(
        self, model: str, keep_last: int, keep_best: int, metric: str
    ) -> None:
        """See `ports.Registry`."""
        request = registry_pb.ApplyRetentionRequest(
            model=model, keep_last=keep_last, keep_best=keep_best, metric=metric
        )
        with rpc_errors("registry"):
            await self._stub.ApplyRetention(request)

    async def _get(self, request: registry_pb.GetVersionRequest) -> registry_pb.Version | None:
        try:
            with rpc_errors("registry"):
                return (await self._stub.GetVersion(request)).version
        except NotFoundError:
            return None
