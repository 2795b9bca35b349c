"""`ports.Inference`, `Rollout`, `Judge` and `Environments` in memory."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    Violation,
)
from podium.core.skip_reasons import JUDGE_BUDGET, NO_ENVIRONMENT_ANSWERS
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.timestamps import now_ns
from podium_controller.domain.waits import OnWait
from support.fakes.registry import LATEST, FakeRegistry
from support.fakes.wire import Later, Wire

BASE_MODEL = "tiny"
_SLOW_TURNS = 14


class FakeInference:
    """A pool of one pod, of merged weights: see `podium_inference.domain.pool`."""

    def __init__(
        self, registry: FakeRegistry, wire: Wire | None = None, base_model: str = BASE_MODEL
    ) -> None:
        self._registry = registry
        self._wire = wire or Wire()
        self.base_model = base_model
        self.window = 2048
        self.weight_mode = inference_pb.WEIGHT_MODE_MERGED
        self.max_lora_rank = 0
        self.untrainable = ""
        self.unrenderable = ""
        self.pool_gpus = 0
        self.job = ""
        self.version = -1
        self.weight_updates: set[spec_pb2.WeightUpdate.ValueType] = set()
        """What loads have asked for."""
        self._forbidden: set[str] = set()
        self.vocabulary = "sha256:one"
        self.rendering = spec_pb2.Rendering()
        self.busy: Callable[[], list[inference_pb.EngineLoad | None]] = lambda: [None]
        """What its pods say of their queue."""
        self.scored: list[tuple[int, ...]] = []
        """What it was asked for as a teacher."""
        self.says: Callable[[Sequence[int]], list[float]] = lambda tokens: [-0.5] * len(tokens)
        """Of the tokens of a sequence but the first."""

    def forget(self) -> None:
        """What its process held is lost."""
        self.job, self.version = "", -1
        self._forbidden.clear()

    async def engine(self) -> inference_pb.GetEngineResponse:
        answer = inference_pb.GetEngineResponse(
            base_model=self.base_model,
            max_model_len=self.window,
            weight_mode=self.weight_mode,
            max_lora_rank=self.max_lora_rank,
            untrainable=self.untrainable,
            unrenderable=self.unrenderable,
            vocabulary_digest=self.vocabulary,
            rendering=self.rendering,
        )
        return await self._wire.call("inference", "engine", lambda: answer)

    async def load(
        self, job_id: str, version: int, weight_update: spec_pb2.WeightUpdate.ValueType
    ) -> inference_pb.LoadPolicyResponse:
        self.weight_updates.add(weight_update)

        def handle() -> inference_pb.LoadPolicyResponse:
            self._forbidden.discard(job_id)
            known = self._has(job_id, version)
            if not known:
                self._exchange(job_id, version)
            return inference_pb.LoadPolicyResponse(already_loaded=known)

        return await self._wire.call("inference", "load", handle)

    async def score(
        self, policy: policy_pb2.PolicyRef, token_ids: Sequence[int]
    ) -> inference_pb.ScoreTokensResponse:
        def handle() -> inference_pb.ScoreTokensResponse:
            version = self.use(policy) if policy.job else 0
            if len(token_ids) >= self.window:
                raise InvalidArgumentError("too long", reason="CONTEXT_LENGTH_EXCEEDED")
            self.scored.append(tuple(token_ids))
            return inference_pb.ScoreTokensResponse(
                logprobs=self.says(token_ids[1:]), policy=policy.job, weights_version=version
            )

        return await self._wire.call("inference", "score_tokens", handle)

    async def unload(self, job_id: str, seconds: float | None = None) -> None:
        def handle() -> None:
            self._forbidden.add(job_id)
            self._drop(job_id)

        await self._wire.call("inference", "unload", handle)

    async def policies(self) -> list[inference_pb.LoadedPolicy]:
        def handle() -> list[inference_pb.LoadedPolicy]:
            return [inference_pb.LoadedPolicy(job=self.job, version=max(self.version, 0))]

        return await self._wire.call("inference", "policies", handle)

    async def gpus(self) -> int:
        return await self._wire.call("inference", "gpus", lambda: self.pool_gpus)

    async def loads(self) -> list[inference_pb.EngineLoad | None]:
        return await self._wire.call("inference", "loads", lambda: self.busy())

    def use(self, policy: policy_pb2.PolicyRef) -> int:
        """The version that samples for a request, which may bring it.

        Raises:
            NotFoundError: POLICY_NOT_LOADED.
        """
        wanted = policy.version if policy.HasField("version") else None
        if self.job == policy.job and wanted in (None, self.version):
            return self.version
        other = self.job not in ("", policy.job)
        older = self.job == policy.job and wanted is not None and wanted < self.version
        if other or older or policy.job in self._forbidden:
            raise NotFoundError(f"{policy.job}@{wanted} is not loaded", reason="POLICY_NOT_LOADED")
        if wanted is None:
            wanted = self._registry.aliases.get((policy.job, LATEST), -1)
        self._exchange(policy.job, wanted)
        return wanted

    def _exchange(self, job_id: str, version: int) -> None:
        if self.job not in ("", job_id):
            raise FailedPreconditionError(f"this pool serves {self.job!r}", reason="POOL_IN_USE")
        self._wire.reach("registry")
        self._registry.pull(job_id, version)
        self.job, self.version = job_id, version

    def _has(self, job_id: str, version: int) -> bool:
        return (self.job, self.version) == (job_id, version)

    def _drop(self, job_id: str) -> None:
        if self.job == job_id:
            self.job, self.version = "", -1


class FakeAdapters(FakeInference):
    """A pool of one pod, of adapters: one version of each of several jobs."""

    def __init__(
        self, registry: FakeRegistry, wire: Wire | None = None, base_model: str = BASE_MODEL
    ) -> None:
        super().__init__(registry, wire, base_model)
        self.weight_mode = inference_pb.WEIGHT_MODE_ADAPTER
        self.loaded: dict[str, int] = {}
        """Versions by job; `job` and `version` are those that were asked for last."""

    def forget(self) -> None:
        super().forget()
        self.loaded.clear()

    def use(self, policy: policy_pb2.PolicyRef) -> int:
        self._turn_to(policy.job)
        return super().use(policy)

    def _exchange(self, job_id: str, version: int) -> None:
        self._turn_to(job_id)
        super()._exchange(job_id, version)
        self.loaded[job_id] = version

    def _has(self, job_id: str, version: int) -> bool:
        return self.loaded.get(job_id) == version

    def _drop(self, job_id: str) -> None:
        self.loaded.pop(job_id, None)
        super()._drop(job_id)

    def _turn_to(self, job_id: str) -> None:
        here = job_id in self.loaded
        self.job, self.version = (job_id, self.loaded[job_id]) if here else ("", -1)


class FakeRollout:
    """Episodes of two turns, whose outcome follows from their id and the version."""

    def __init__(self, pools: dict[str, FakeInference], wire: Wire | None = None) -> None:
        self._pools = pools
        self._wire = wire or Wire()
        self.splits = {"train": 8, "heldout": 2}
        self.collected: Counter[str] = Counter()
        """By id of the group, those that were collected to the end."""
        self.asked: Counter[str] = Counter()
        """The same, whatever became of them."""
        self.fails: Callable[[str], bool] = lambda group_id: False
        """Whether all attempts of a group break."""
        self.refused: Callable[[str], bool] = lambda scenario_id: False
        """Scenarios that the environment does not take."""
        self.loses: Callable[[rollout_pb.CollectGroupRequest], str] = lambda request: ""
        """Why the environment of a group is not there, by its reason; empty where it is."""
        self.away: Collection[str] = ()
        """Environments, by name, that are not there to say what scenarios they have."""
        self.is_flat: Callable[[str], bool] = lambda group_id: False
        """Whether all attempts of a group have the same luck."""
        self.flat_share = 0.0
        """Of all groups: those of which that is true besides."""
        self.slow_share = 0.0
        """Of all groups: those that have many turns."""
        self.tell: Callable[[trajectory_pb2.Trajectory], None] = lambda attempt: None
        """What an environment says of an attempt besides."""
        self.luck: float | None = None
        """Of every attempt; None for one of its own."""
        self.is_pure = True
        """Whether an episode comes out the same each time that it is run."""

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> list[trajectory_pb2.Trajectory]:
        began = now_ns()
        self.asked[request.group_id] += 1
        turns = _SLOW_TURNS if _drawn(f"{request.group_id}/slow") < self.slow_share else 2
        versions: list[int] = []

        def turn() -> Later | list[trajectory_pb2.Trajectory]:
            versions.append(self._use(request))
            if len(versions) == 1 and (reason := self.loses(request)):
                raise UnavailableError(f"environment {request.environment.name!r}", reason=reason)
            if self.refused(request.scenario.id):
                raise InvalidArgumentError(
                    violations=[Violation("scenario.data.inbox", "got none")]
                )
            if len(versions) < turns:
                return Later(turn)
            self.collected[request.group_id] += 1
            return [
                self._episode(request, attempt, versions, began)
                for attempt in range(request.attempts)
            ]

        return await self._wire.call("rollout", "collect", turn)

    async def scenarios(
        self, environment: spec_pb2.EnvironmentSpec, split: str, limit: int = 0
    ) -> list[trajectory_pb2.Scenario]:
        def handle() -> list[trajectory_pb2.Scenario]:
            if environment.name in self.away:
                text = f"environment {environment.name!r}"
                raise UnavailableError(text, reason=NO_ENVIRONMENT_ANSWERS)
            if split not in self.splits:
                raise NotFoundError(f"no split {split!r}")
            count = min(limit or self.splits[split], self.splits[split])
            return [trajectory_pb2.Scenario(id=f"{split}-{i}", split=split) for i in range(count)]

        return await self._wire.call("rollout", "scenarios", handle)

    async def environments(self) -> list[rollout_pb.EnvironmentInfo]:
        info = rollout_pb.EnvironmentInfo(name="double", splits=sorted(self.splits))
        return await self._wire.call("rollout", "environments", lambda: [info])

    def _use(self, request: rollout_pb.CollectGroupRequest) -> int:
        self._wire.reach("inference")
        if request.pool not in self._pools:
            raise InvalidArgumentError(f"there is no pool {request.pool!r}")
        return self._pools[request.pool].use(request.policy)

    def _episode(
        self,
        request: rollout_pb.CollectGroupRequest,
        attempt: int,
        versions: Sequence[int],
        began: int,
    ) -> trajectory_pb2.Trajectory:
        group_id = request.group_id
        id_ = f"{group_id}/t{attempt}"
        trajectory = trajectory_pb2.Trajectory(
            id=id_,
            group_id=group_id,
            scenario_id=request.scenario.id,
            attempt=attempt,
        )
        trajectory.start_time.FromNanoseconds(began)
        if self.fails(group_id):
            trajectory.stop_reason = trajectory_pb2.STOP_REASON_FAILED
            trajectory.failure.message = "the inbox is missing"
            return trajectory
        again = 0 if self.is_pure else self.collected[group_id]
        temperature = request.sampling.temperature
        after = f"@{versions[0]}/{again}/{temperature}"
        luck = _drawn(f"{id_}{after}")
        flat = _drawn(f"{group_id}/flat{after}") < self.flat_share
        if flat or self.is_flat(group_id):
            luck = _drawn(f"{group_id}{after}")
        luck = luck if self.luck is None else self.luck
        trajectory.stop_reason = trajectory_pb2.STOP_REASON_TERMINATED
        trajectory.environment_reward = luck
        trajectory.metrics["success"] = float(luck > 0.5)
        tokens = trajectory.histories.add().tokens
        sampled = list(dict.fromkeys(versions))
        tokens.token_ids.extend([1, *[2 + attempt] * len(sampled)])
        tokens.logprobs.extend([-1.0] * len(sampled))
        policy = request.policy.job
        for start, version in enumerate(sampled, 1):
            tokens.spans.add(
                start=start,
                length=1,
                policy=policy,
                weights_version=version,
                temperature=temperature,
            )
        self.tell(trajectory)
        return trajectory


def _drawn(name: str) -> float:
    """A number in [0, 1) that follows from a name."""
    return (zlib.crc32(name.encode()) * 0x9E3779B1 >> 16 & 0xFFFF) / 0x10000


class FakeJudge:
    """Rewards are those of the environment."""

    def __init__(self, wire: Wire | None = None) -> None:
        self._wire = wire or Wire()
        self.judged: Counter[str] = Counter()
        self.usage = judge_pb.JudgeUsage(calls=1)
        """Of each group."""
        self.needs = 0
        """Tokens that it must be granted for a group, where it is granted any."""

    async def check(self, reward: spec_pb2.RewardSpec, base_model: str) -> None:
        await self._wire.call("judge", "check", lambda: None)

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        def handle() -> judge_pb.ScoreGroupResponse:
            answer = judge_pb.ScoreGroupResponse(group=request.group)
            if request.grant.HasField("tokens") and request.grant.tokens < self.needs:
                answer.group.skip_reason = JUDGE_BUDGET
                answer.wanted.tokens = self.needs
                return answer
            self.judged[request.group.id] += 1
            for trajectory in answer.group.trajectories:
                if trajectory.stop_reason != trajectory_pb2.STOP_REASON_FAILED:
                    trajectory.reward = trajectory.environment_reward
            answer.usage.CopyFrom(self.usage)
            return answer

        return await self._wire.call("judge", "score", handle)


class FakeEnvironments:
    """See `podium_controller.grpc_peers.peers.NoEnvironments`."""

    def __init__(self) -> None:
        self.address = ""
        """Where images run; empty where none does."""

    async def violations(self, spec: spec_pb2.EnvironmentSpec) -> list[Violation]:
        return [] if self.address else [Violation("job.spec.environment.image", "got one")]

    async def place(self, job: JobRecord, on_wait: OnWait) -> str:
        if not self.address:
            raise JobFailedError("no image runs here", reason="ENVIRONMENT_INVALID")
        return self.address

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        pass

    async def retain(self, job_ids: Collection[str]) -> None:
        pass
