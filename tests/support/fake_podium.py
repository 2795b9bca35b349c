"""Test doubles of the four services that clients call, on one real gRPC server.

They keep just enough state for the SDK and the CLI to be tested over a real
channel: jobs by id, a watch that can break, blobs in memory, and a chat that
answers by rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import grpc
from podium.core.errors import (
    AbortedError,
    FailedPreconditionError,
    NotFoundError,
    UnavailableError,
)
from podium.inference.v1 import inference_service_pb2 as inference
from podium.inference.v1 import inference_service_pb2_grpc as inference_grpc
from podium.jobs.v1 import evaluation_service_pb2_grpc as evaluations_grpc
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.kit.rpc import Server, ServerSettings
from podium.registry.v1 import registry_service_pb2 as registry
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.rollout.v1 import rollout_service_pb2 as rollout
from podium.rollout.v1 import rollout_service_pb2_grpc as rollout_grpc
from podium.sdk import Addresses
from podium.types.v1 import trajectory_pb2
from podium_controller.api.evaluation_servicer import EvaluationServicer
from podium_controller.pools.projects import Projects
from podium_controller.store import Database, EvaluationStore
from support.empty_database import empty_database
from support.fake_job_service import FakeJobs

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass
class FakeRegistry(registry_grpc.RegistryServiceServicer):
    """The registry's double."""

    versions: list[registry.Version] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    break_downloads: int = 0
    """Downloads to break after their first chunk."""

    def publish(self, model: str, version: int, files: dict[str, bytes]) -> registry.Version:
        """Adds a version with these files."""
        made = registry.Version(aliases=["latest"])
        made.manifest.model, made.manifest.version = model, version
        made.manifest.base_model = "smollm2-135m-instruct"
        for path, content in files.items():
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            self.blobs[digest] = content
            made.manifest.files.add(path=path, size=len(content), digest=digest)
        made.total_bytes = sum(len(content) for content in files.values())
        self.versions.insert(0, made)
        return made

    async def ListModels(
        self, request: registry.ListModelsRequest, context: Context
    ) -> registry.ListModelsResponse:
        names = sorted({item.manifest.model for item in self.versions})
        return registry.ListModelsResponse(models=[registry.Model(name=name) for name in names])

    async def ListVersions(
        self, request: registry.ListVersionsRequest, context: Context
    ) -> registry.ListVersionsResponse:
        found = [item for item in self.versions if item.manifest.model == request.model]
        return registry.ListVersionsResponse(versions=found)

    async def GetVersion(
        self, request: registry.GetVersionRequest, context: Context
    ) -> registry.GetVersionResponse:
        for item in self.versions:
            by_alias = request.WhichOneof("selector") == "alias"
            right = (
                request.alias in item.aliases
                if by_alias
                else request.version == item.manifest.version
            )
            if item.manifest.model == request.model and right:
                return registry.GetVersionResponse(version=item)
        raise NotFoundError(f"no such version of {request.model}")

    async def GetLineage(
        self, request: registry.GetLineageRequest, context: Context
    ) -> registry.GetLineageResponse:
        known = {(i.manifest.model, i.manifest.version): i.manifest for i in self.versions}
        here, found = known.get((request.model, request.version)), registry.GetLineageResponse()
        while here and here.parents:
            found.ancestors.append(here.parents[0])
            here = known.get((here.parents[0].model, here.parents[0].version))
        return found

    async def SetAlias(
        self, request: registry.SetAliasRequest, context: Context
    ) -> registry.SetAliasResponse:
        own = [item for item in self.versions if item.manifest.model == request.model]
        there = next((i for i in own if request.alias in i.aliases), None)
        at = there.manifest.version if there else -1
        if request.HasField("expected_version") and request.expected_version != at:
            raise AbortedError(f"{request.alias} points at {at}", reason="ALIAS_MOVED")
        made = next((i for i in own if i.manifest.version == request.version), None)
        if made is None:
            raise NotFoundError(f"no such version of {request.model}")
        if there:
            there.aliases.remove(request.alias)
        made.aliases.append(request.alias)
        return registry.SetAliasResponse(version=made)

    async def DownloadBlob(
        self, request: registry.DownloadBlobRequest, context: Context
    ) -> AsyncIterator[registry.DownloadBlobResponse]:
        content = self.blobs[request.digest]
        for offset in range(request.offset, len(content), 1000):
            data = content[offset : offset + 1000]
            yield registry.DownloadBlobResponse(
                offset=offset,
                data=data,
                crc32c=google_crc32c.value(data),
                total_size=len(content),
            )
            if self.break_downloads:
                self.break_downloads -= 1
                raise UnavailableError("draining")


@dataclass
class FakeInference(inference_grpc.InferenceServiceServicer):
    """The pool's double: answers with the last message, turned round word by word."""

    loaded: list[tuple[str, int]] = field(default_factory=list)
    chats: list[inference.StreamChatRequest] = field(default_factory=list)
    merged: bool = False
    """Whether it holds one policy, or else the base model."""

    async def GetEngine(
        self, request: inference.GetEngineRequest, context: Context
    ) -> inference.GetEngineResponse:
        mode = inference.WEIGHT_MODE_MERGED if self.merged else inference.WEIGHT_MODE_ADAPTER
        return inference.GetEngineResponse(weight_mode=mode)

    async def UnloadPolicy(
        self, request: inference.UnloadPolicyRequest, context: Context
    ) -> inference.UnloadPolicyResponse:
        self.loaded = [each for each in self.loaded if each[0] != request.job]
        return inference.UnloadPolicyResponse()

    async def ListPolicies(
        self, request: inference.ListPoliciesRequest, context: Context
    ) -> inference.ListPoliciesResponse:
        policies = [inference.LoadedPolicy(job=job, version=v) for job, v in self.loaded]
        return inference.ListPoliciesResponse(policies=policies)

    async def LoadPolicy(
        self, request: inference.LoadPolicyRequest, context: Context
    ) -> inference.LoadPolicyResponse:
        if request.job == "busy":
            raise FailedPreconditionError("the pool serves another job", reason="POOL_IN_USE")
        if self.merged:
            if {job for job, _ in self.loaded} - {request.job}:
                raise FailedPreconditionError("it serves another job", reason="POOL_IN_USE")
            self.loaded.clear()
        self.loaded.append((request.job, request.version))
        return inference.LoadPolicyResponse()

    async def StreamChat(
        self, request: inference.StreamChatRequest, context: Context
    ) -> AsyncIterator[inference.StreamChatResponse]:
        self.chats.append(request)
        asked, served = request.policy, self.loaded
        if self.merged and served and (asked.job, asked.version) not in served:
            raise NotFoundError("another policy is merged", reason="POLICY_NOT_LOADED")
        words = request.messages[-1].content.split()[::-1]
        for word in words:
            yield inference.StreamChatResponse(delta=inference.Generation(text=f"{word} "))
        last = inference.StreamChatResponse()
        last.delta.finish_reason = trajectory_pb2.FINISH_REASON_STOP
        last.message.role = trajectory_pb2.ROLE_ASSISTANT
        last.message.content = " ".join(words)
        yield last


@dataclass
class FakeRollout(rollout_grpc.RolloutServiceServicer):
    """The rollout service's double: a scenario for each reward, which ends its only turn."""

    rewards: tuple[float, ...] = (0.9, 0.51, 1.0, 0.5)
    requests: list[rollout.CollectGroupRequest] = field(default_factory=list)
    says: Callable[[rollout.CollectGroupRequest, int], str] | None = None
    """What a policy answers in an attempt; None for an episode without words."""
    workers: int | None = None
    """Its processes; None for one of before there were several."""

    async def ListScenarios(
        self, request: rollout.ListScenariosRequest, context: Context
    ) -> rollout.ListScenariosResponse:
        found = [trajectory_pb2.Scenario(id=str(n)) for n in range(len(self.rewards))]
        return rollout.ListScenariosResponse(scenarios=found)

    async def CollectGroup(
        self, request: rollout.CollectGroupRequest, context: Context
    ) -> AsyncIterator[rollout.CollectGroupResponse]:
        self.requests.append(request)
        for attempt in range(request.attempts):
            trajectory = trajectory_pb2.Trajectory(
                id=f"{request.group_id}/t{attempt}",
                group_id=request.group_id,
                scenario_id=request.scenario.id,
                attempt=attempt,
                environment_reward=self.rewards[int(request.scenario.id)],
                stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
            )
            if self.says is not None:
                messages = trajectory.histories.add().messages
                messages.add(role=trajectory_pb2.ROLE_USER, content="How many?")
                words = self.says(request, attempt)
                messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content=words)
            yield rollout.CollectGroupResponse(trajectory=trajectory)

    async def ListEnvironments(
        self, request: rollout.ListEnvironmentsRequest, context: Context
    ) -> rollout.ListEnvironmentsResponse:
        info = rollout.EnvironmentInfo(
            name="email_search", description="Find one email.", splits=["train", "heldout"]
        )
        return rollout.ListEnvironmentsResponse(environments=[info], workers=self.workers)


@dataclass
class FakePodium:
    """All four, and where they are."""

    jobs: FakeJobs
    registry: FakeRegistry
    inference: FakeInference
    rollout: FakeRollout
    address: str

    @property
    def addresses(self) -> Addresses:
        """For the SDK: one server plays every part."""
        return Addresses(*[self.address] * 5, source="a test")

    @property
    def environment(self) -> dict[str, str]:
        """For the CLI."""
        names = ("", "REGISTRY_", "INFERENCE_", "ROLLOUT_")
        return {f"PODIUM_{name}ADDRESS": self.address for name in names}


@asynccontextmanager
async def fake_podium(stored: Path | None = None, **settings: Any) -> AsyncIterator[FakePodium]:
    """Serves the doubles on a free port.

    Args:
        stored: where the controller's own EvaluationService keeps its database; None for a
            controller that has none.
    """
    server = Server("fake", ServerSettings(**settings))
    # The doubles lack what no client calls; gRPC answers that with UNIMPLEMENTED.
    pool = FakeInference()
    fake = FakePodium(FakeJobs(), FakeRegistry(), pool, FakeRollout(), "")
    server.add(jobs_grpc.add_JobServiceServicer_to_server, fake.jobs, "podium.jobs.v1.JobService")
    server.add(
        registry_grpc.add_RegistryServiceServicer_to_server,
        fake.registry,
        "podium.registry.v1.RegistryService",
    )
    server.add(
        inference_grpc.add_InferenceServiceServicer_to_server,
        fake.inference,
        "podium.inference.v1.InferenceService",
    )
    server.add(
        rollout_grpc.add_RolloutServiceServicer_to_server,
        fake.rollout,
        "podium.rollout.v1.RolloutService",
    )
    database = None
    if stored is not None:
        database = Database(await empty_database(stored))
        server.add(
            evaluations_grpc.add_EvaluationServiceServicer_to_server,
            EvaluationServicer(EvaluationStore(database), Projects()),
            "podium.jobs.v1.EvaluationService",
        )
    await server.start()
    fake.address = f"127.0.0.1:{server.port}"
    try:
        yield fake
    finally:
        await server.stop(0)
        if database is not None:
            await database.close()
