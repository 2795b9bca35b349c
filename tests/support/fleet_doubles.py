"""Test doubles of the services that a controller drives, over real gRPC.

Doubles: rollout, inference and trainer, faithful where the controller can
tell: an engine forgets its policies when it dies, a trainer its step; ids,
versions and failures are those of the contract. The judge is the real servicer.

Every double calls `Fleet.reached` with the name of a point, such as
`step:taken`; a test hangs its faults there, so that nothing under test needs
a hook.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from google.protobuf.timestamp_pb2 import Timestamp
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from podium.core.page_tokens import page_of
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.inference.v1 import inference_service_pb2_grpc as inference_grpc
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.judge.v1 import judge_service_pb2_grpc as judge_grpc
from podium.kit.rpc import Server, ServerSettings
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.rollout.v1 import rollout_service_pb2_grpc as rollout_grpc
from podium.types.v1 import policy_pb2, trajectory_pb2
from podium_judge.servicer import JudgeServicer
from podium_judge.settings import Settings as JudgeSettings
from support.demonstrated import demonstrated
from support.pretended import digest_of
from support.processes import free_port

if TYPE_CHECKING:
    from support.fleet import Fleet

BASE_MODEL = "double-model"


TRAIN_SCENARIOS = 10


HELDOUT_SCENARIOS = 5


Point = Callable[[str, str], Awaitable[None]]
"""Called with a point's name and what it is about, e.g. a group's id."""


class Member:
    """A double on a port of its own, which it keeps over its deaths."""

    service = ""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.port = free_port()
        self.calls: Counter[str] = Counter()
        self._server: Server | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def attach(self, server: Server) -> None:
        """Adds the servicer."""
        raise NotImplementedError

    def forget(self) -> None:
        """What dies with the process."""

    async def start(self, tokens: Path | None = None) -> None:
        """With `tokens`, a file, it takes no other."""
        settings = ServerSettings(port=self.port, auth_tokens_file=tokens)
        server = Server(self.service, settings)
        self.attach(server)
        await server.start()
        self._server = server

    async def kill(self) -> None:
        """Cuts every call and loses what was in memory."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)
        self.forget()

    async def reached(self, point: str, about: str = "") -> None:
        """Lets the test act; a call that is cut here ends here."""
        self.calls[point] += 1
        await self.fleet.reached(point, about)


class InferenceDouble(Member, inference_grpc.InferenceServiceServicer):
    """A pool: merged, of one job at a time, unless it is of adapters. One version a job."""

    service = "inference"

    def __init__(
        self, fleet: Fleet, base_model: str = BASE_MODEL, *, adapters: bool = False
    ) -> None:
        super().__init__(fleet)
        self.base_model = base_model
        self.adapters = adapters
        self.window = 2048
        self.policies: dict[str, int] = {}
        """Versions by job, the last one loaded last."""
        self.loads: list[tuple[str, int]] = []
        self.vocabulary = "sha256:one"
        self.scored = 0
        """Sequences that it was asked about as a teacher."""
        self.pulls = False
        """Whether it reads the files of what it loads."""

    def attach(self, server: Server) -> None:
        server.add(
            inference_grpc.add_InferenceServiceServicer_to_server,
            self,
            "podium.inference.v1.InferenceService",
        )

    def forget(self) -> None:
        self.policies.clear()

    @property
    def job(self) -> str:
        return next(reversed(self.policies), "")

    @property
    def version(self) -> int:
        return self.policies.get(self.job, -1)

    @property
    def alive(self) -> bool:
        return self._server is not None

    def resolve(self, policy: policy_pb2.PolicyRef) -> int:
        """The version that samples for a policy now."""
        if not self.alive:
            raise UnavailableError("inference cannot be reached", metadata={"peer": "inference"})
        version = self.policies.get(policy.job, -1)
        if version < 0 or (policy.HasField("version") and policy.version != version):
            raise NotFoundError(
                f"{policy.job}@{policy.version} is not loaded", reason="POLICY_NOT_LOADED"
            )
        return version

    async def GetEngine(self, request: Any, context: Any) -> inference_pb.GetEngineResponse:
        self.calls["engine"] += 1
        return inference_pb.GetEngineResponse(
            base_model=self.base_model,
            max_model_len=self.window,
            vocabulary_digest=self.vocabulary,
            weight_mode=inference_pb.WEIGHT_MODE_ADAPTER
            if self.adapters
            else inference_pb.WEIGHT_MODE_MERGED,
        )

    async def RenderDemonstration(
        self, request: Any, context: Any
    ) -> inference_pb.RenderDemonstrationResponse:
        return demonstrated(request)

    async def ScoreTokens(
        self, request: inference_pb.ScoreTokensRequest, context: Any
    ) -> inference_pb.ScoreTokensResponse:
        await self.reached("score", request.policy.job)
        version = self.resolve(request.policy) if request.policy.job else 0
        self.scored += 1
        # Another number each time: who asks twice about one token learns from another number.
        return inference_pb.ScoreTokensResponse(
            logprobs=[-self.scored / 1024] * (len(request.token_ids) - 1),
            policy=request.policy.job,
            weights_version=version,
        )

    async def ListPolicies(self, request: Any, context: Any) -> inference_pb.ListPoliciesResponse:
        policies = [inference_pb.LoadedPolicy(job="")]
        policies += [inference_pb.LoadedPolicy(job=j, version=v) for j, v in self.policies.items()]
        return inference_pb.ListPoliciesResponse(policies=policies)

    async def LoadPolicy(self, request: Any, context: Any) -> inference_pb.LoadPolicyResponse:
        await self.reached("load:begin", f"{request.job}@{request.version}")
        if not self.adapters and self.job not in ("", request.job):
            raise FailedPreconditionError(f"serves {self.job}", reason="POOL_IN_USE")
        await self.fleet.client.get_version(request.job, request.version)
        if self.pulls:
            await self.fleet.weights_of(request.job, request.version)
        known = self.policies.pop(request.job, -1) == request.version
        self.policies[request.job] = request.version
        self.loads.append((request.job, request.version))
        await self.reached("load:end", f"{request.job}@{request.version}")
        return inference_pb.LoadPolicyResponse(
            policy=inference_pb.LoadedPolicy(job=request.job, version=request.version),
            already_loaded=known,
        )

    async def UnloadPolicy(self, request: Any, context: Any) -> inference_pb.UnloadPolicyResponse:
        await self.reached("unload", request.job)
        self.policies.pop(request.job, None)
        return inference_pb.UnloadPolicyResponse()


class RolloutDouble(Member, rollout_grpc.RolloutServiceServicer):
    """Episodes of one turn, whose outcome is a pure function of their id and version."""

    service = "rollout"

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.collected: Counter[str] = Counter()
        """Groups that were streamed to their end."""
        self.requests: list[rollout_pb.CollectGroupRequest] = []
        self.running = 0
        self.most_running = 0
        self.cancelled = 0
        self.failing = False
        self.failure = "the inbox is missing"
        """Whether every attempt raises."""
        self.version_of: Callable[[str, int], int] = lambda _, version: version
        """What the spans of a group claim, from its id and the real version."""

    def attach(self, server: Server) -> None:
        server.add(
            rollout_grpc.add_RolloutServiceServicer_to_server,
            self,
            "podium.rollout.v1.RolloutService",
        )

    async def ListEnvironments(
        self, request: Any, context: Any
    ) -> rollout_pb.ListEnvironmentsResponse:
        info = rollout_pb.EnvironmentInfo(name="double", splits=["train", "heldout", "empty"])
        return rollout_pb.ListEnvironmentsResponse(environments=[info])

    async def ListScenarios(self, request: Any, context: Any) -> rollout_pb.ListScenariosResponse:
        counts = {"train": TRAIN_SCENARIOS, "heldout": HELDOUT_SCENARIOS, "empty": 0}
        if request.environment.name != "double" or request.split not in counts:
            raise NotFoundError(f"no split {request.split!r} of {request.environment.name!r}")
        if request.environment.config.fields["refuse"].bool_value:
            raise InvalidArgumentError("the option `refuse` is refused")
        if request.environment.config.fields["away"].bool_value:
            peer = f"environment {request.environment.name!r}"
            raise UnavailableError(f"{peer} cannot be reached", metadata={"peer": peer})
        size = min(request.page_size or 1000, 4)
        numbers = range(counts[request.split])
        found, token = page_of(numbers, size, request.page_token, [request.split])
        return rollout_pb.ListScenariosResponse(
            scenarios=[
                trajectory_pb2.Scenario(id=f"{request.split}-{i}", split=request.split)
                for i in found
            ],
            next_page_token=token,
        )

    async def CollectGroup(
        self, request: rollout_pb.CollectGroupRequest, context: Any
    ) -> AsyncIterator[rollout_pb.CollectGroupResponse]:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await self.reached("collect:begin", request.group_id)
            for attempt in range(request.attempts):
                yield rollout_pb.CollectGroupResponse(trajectory=self._episode(request, attempt))
            await self.reached("collect:end", request.group_id)
            self.fleet.pool(request.pool).resolve(request.policy)
            self.collected[request.group_id] += 1
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    def _episode(
        self, request: rollout_pb.CollectGroupRequest, attempt: int
    ) -> trajectory_pb2.Trajectory:
        version = self.fleet.pool(request.pool).resolve(request.policy)
        version = self.version_of(request.group_id, version)
        now = Timestamp()
        now.GetCurrentTime()
        trajectory = trajectory_pb2.Trajectory(
            id=f"{request.group_id}/t{attempt}",
            group_id=request.group_id,
            scenario_id=request.scenario.id,
            attempt=attempt,
            start_time=now,
            end_time=now,
        )
        if self.failing:
            trajectory.stop_reason = trajectory_pb2.STOP_REASON_FAILED
            trajectory.failure.type = "KeyError"
            trajectory.failure.message = self.failure
            return trajectory
        luck = digest_of(request.seed, trajectory.id, request.sampling.temperature)[0] / 256
        success = float(luck < 0.2 + 0.1 * version)
        trajectory.stop_reason = trajectory_pb2.STOP_REASON_TERMINATED
        trajectory.environment_reward = success + luck / 10
        trajectory.metrics.update({"success": success, "turns": 1.0})
        span = trajectory_pb2.SampledSpan(
            start=2,
            length=3,
            policy=request.policy.job,
            weights_version=version,
            temperature=request.sampling.temperature,
        )
        history = trajectory.histories.add()
        history.messages.add(role=trajectory_pb2.ROLE_USER, content="find it")
        history.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content=f"luck {luck}")
        history.tokens.token_ids.extend([1, 2, 3, 4, 5])
        history.tokens.logprobs.extend([-0.5, -0.25, -0.125])
        history.tokens.spans.append(span)
        return trajectory


class JudgeDouble(Member, judge_grpc.JudgeServiceServicer):
    """The real judge, watched."""

    service = "judge"

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self._client = httpx.AsyncClient()
        self.forget()
        self.judged: list[str] = []
        self.broken = False

    def forget(self) -> None:
        """Its memory becomes that of a new replica."""
        self._real = JudgeServicer(JudgeSettings(), self._client)

    def attach(self, server: Server) -> None:
        server.add(
            judge_grpc.add_JudgeServiceServicer_to_server, self, "podium.judge.v1.JudgeService"
        )

    async def CheckReward(self, request: Any, context: Any) -> judge_pb.CheckRewardResponse:
        return await self._real.CheckReward(request, context)

    async def ScoreGroup(self, request: Any, context: Any) -> judge_pb.ScoreGroupResponse:
        self.judged.append(request.group.id)
        await self.reached("judge:begin", request.group.id)
        if self.broken:
            request.group.skip_reason = "judge_failed"
            return judge_pb.ScoreGroupResponse(group=request.group)
        response = await self._real.ScoreGroup(request, context)
        await self.reached("judge:end", request.group.id)
        return response

    async def close(self) -> None:
        await self._client.aclose()
