"""Stub peers of the controller: an engine whose groups take as long as a seed says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from podium.core.tasks import run_all
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.waits import OnWait

from bench.asynchronous.places import Places


@dataclass(frozen=True)
class Tempo:
    """How long things take, and how many groups have no variance."""

    median: float
    """Seconds of an attempt; they are lognormal."""
    sigma: float
    flat: float
    """The share of groups whose attempts all have one reward."""
    training: float
    """Seconds of a step, with publishing and serving."""

    turns: int = 1
    """Requests of an attempt; only where the engine has places."""
    tool: float = 0.0
    """Seconds between two of them."""

    def group(self, name: str, attempts: int) -> tuple[list[float], bool]:
        """Seconds at the engine of each attempt of a group, and whether it can teach."""
        draw = random.Random(name)
        seconds = [self.median * draw.lognormvariate(0, self.sigma) for _ in range(attempts)]
        return seconds, draw.random() >= self.flat


@dataclass
class Stub:
    """Every peer of one job at once, as far as its loop calls them."""

    tempo: Tempo
    places: Places | None = None
    """The engine's; None where it has one for whoever comes."""
    served: int = 0
    """The one that is served."""
    manifests: dict[int, registry_pb.Manifest] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each group that came to its end."""
    begun: list[float] = field(default_factory=list)
    """Of each group that was begun, so many as it takes or would have taken."""
    ended: int = 0
    """Groups that were ended before."""
    trained: dict[int, list[tuple[str, int, bool]]] = field(default_factory=dict)
    """By step: id, oldest version, and whether it can teach, of each group."""
    samples: int = 0
    """Attempts of groups that could teach."""

    # Rollout.

    async def collect(
        self, request: rollout_pb.CollectGroupRequest
    ) -> list[trajectory_pb2.Trajectory]:
        version = self.served
        lengths, teaches = self.tempo.group(request.group_id, request.attempts)
        self.begun.append(max(lengths))
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            if self.places is None:
                await asyncio.sleep(max(lengths))
            else:
                places = self.places
                await run_all([self._attempt(places, each) for each in lengths])
        except asyncio.CancelledError:
            self.ended += 1
            raise
        self.seconds[request.group_id] = clock() - began
        found = []
        for attempt in range(request.attempts):
            each = trajectory_pb2.Trajectory(
                id=f"{request.group_id}/t{attempt}",
                group_id=request.group_id,
                scenario_id=request.scenario.id,
                attempt=attempt,
                stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
                environment_reward=float(teaches and attempt % 2),
            )
            tokens = each.histories.add().tokens
            tokens.spans.add(length=1, policy=request.policy.job, weights_version=version)
            found.append(each)
        return found

    async def _attempt(self, places: Places, seconds: float) -> None:
        for turn in range(self.tempo.turns):
            if turn:
                await asyncio.sleep(self.tempo.tool)
            await places.compute(seconds / self.tempo.turns)

    async def scenarios(
        self, environment: spec_pb2.EnvironmentSpec, split: str, limit: int = 0
    ) -> list[trajectory_pb2.Scenario]:
        return [trajectory_pb2.Scenario(id=f"s{i}", split=split) for i in range(64)]

    # Judge.

    async def score(self, request: judge_pb.ScoreGroupRequest) -> judge_pb.ScoreGroupResponse:
        answer = judge_pb.ScoreGroupResponse(group=request.group)
        for each in answer.group.trajectories:
            each.reward = each.environment_reward
        return answer

    # Trainer.

    def hold_trainer(self) -> None:
        return None

    async def ready(self, on_wait: OnWait) -> bool:
        return False

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        return trainer_pb.OpenResponse(step=request.resume_version)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        await asyncio.sleep(self.tempo.training)
        rows = []
        for group in groups:
            teaches = len({each.reward for each in group.trajectories}) > 1
            spans = [t.histories[0].tokens.spans[0].weights_version for t in group.trajectories]
            rows.append((group.id, min(spans), teaches))
            self.samples += teaches * len(group.trajectories)
        self.trained[step] = rows
        skipped = {id_: "zero_variance" for id_, _, teaches in rows if not teaches}
        return trainer_pb.StepResponse(step=step, skipped_groups=skipped)

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        self.manifests[request.step] = registry_pb.Manifest(
            model=request.job_id, version=request.step, group_ids=request.group_ids
        )
        return trainer_pb.SaveResponse(version=request.step)

    async def save_state(self, job_id: str, step: int) -> None:
        return None

    # Registry.

    async def version(self, model: str, version: int) -> registry_pb.Version | None:
        found = self.manifests.get(version)
        return None if found is None else registry_pb.Version(manifest=found)

    async def resumable(self, model: str, version: int) -> registry_pb.Version | None:
        return await self.version(model, version)

    async def apply_retention(
        self,
        model: str,
        keep_last: int,
        keep_best: int,
        metric: str,
        lower_is_better: bool,
        keep_versions: Sequence[int],
    ) -> None:
        return None

    # Pool.

    async def load(
        self, job_id: str, version: int, weight_update: spec_pb2.WeightUpdate.ValueType
    ) -> inference_pb.LoadPolicyResponse:
        self.served = version
        return inference_pb.LoadPolicyResponse()

    async def loads(self) -> list[inference_pb.EngineLoad | None]:
        return [self.places.load() if self.places else None]
