"""The trainer's double: it forgets its step when it dies, and publishes real versions."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    ResourceExhaustedError,
)
from podium.core.version_state import has_state
from podium.kit.rpc import Server
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.trainer.v1 import trainer_service_pb2_grpc as trainer_grpc
from podium.types.v1 import trajectory_pb2
from support.fleet_doubles import Member
from support.pretended import learned_from, trained_weights

if TYPE_CHECKING:
    from support.fleet import Fleet


@dataclass
class _Opened:
    """A job at a trainer."""

    base_model: str
    step: int
    weights: str


class TrainerDouble(Member, trainer_grpc.TrainerServiceServicer):
    """An optimizer whose weights are a digest of all that they were trained on, in order."""

    service = "trainer"

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.rooms = 1
        """Jobs that it takes at once, where it stands for several trainers."""
        self.opened: dict[str, _Opened] = {}
        self.ballast: dict[str, bytes] = {}
        """Further files of every version."""
        self.skips = ""
        """Why it leaves out every group of a step."""
        self.noise = ""
        """Makes the steps come out otherwise from now on, as those of a GPU may."""
        self.states: dict[tuple[str, int], asyncio.Task[None]] = {}
        """What is or was stored behind the weights, by job and step."""
        self.opens: list[tuple[str, int]] = []
        self.projects: dict[str, str] = {}
        """Of each job that was opened."""
        self.taken: list[tuple[str, int]] = []
        self.ages: dict[int, list[int]] = {}
        """Step to the versions that its groups were sampled from."""
        self.given: list[list[trajectory_pb2.Group]] = []
        """The groups of each step that was taken."""
        self.tells: dict[str, float] = {}
        """Numbers of every step, besides those that it always has."""

    def attach(self, server: Server) -> None:
        server.add(
            trainer_grpc.add_TrainerServiceServicer_to_server,
            self,
            "podium.trainer.v1.TrainerService",
        )

    def forget(self) -> None:
        self.opened.clear()
        for task in self.states.values():
            task.cancel()
        self.states.clear()

    @property
    def job(self) -> str:
        return next(reversed(self.opened), "")

    async def GetTrainer(self, request: Any, context: Any) -> trainer_pb.GetTrainerResponse:
        model = next((each.base_model for each in self.opened.values()), "")
        return trainer_pb.GetTrainerResponse(
            base_model=model, max_jobs=self.rooms, open_jobs=list(self.opened)
        )

    async def Open(self, request: Any, context: Any) -> trainer_pb.OpenResponse:
        await self.reached("open", request.job_id)
        here = self.opened.get(request.job_id)
        if here is None and len(self.opened) >= self.rooms:
            raise ResourceExhaustedError(
                f"{', '.join(self.opened)} are open",
                reason="TRAINER_BUSY",
                metadata={"job_id": ",".join(self.opened)},
            )
        at = request.resume_version if request.HasField("resume_version") else 0
        if here is None or here.step != at or self.fleet.trainer_reloads:
            weights = trained_weights(request.seed, [])
            if request.HasField("resume_version"):
                weights = await self._fetch(request.job_id, at)
            here = _Opened(request.base_model, at, weights)
        self.opened[request.job_id] = here
        self.opens.append((request.job_id, at))
        self.projects[request.job_id] = request.project
        return trainer_pb.OpenResponse(step=at, trainable_parameters=1)

    async def Step(self, requests: Any, context: Any) -> trainer_pb.StepResponse:
        header: trainer_pb.StepHeader | None = None
        groups: list[trajectory_pb2.Group] = []
        async for request in requests:
            if header is None:
                header = request.header
                self._expect(header.job_id, header.step - 1)
                await self.reached("step:begin", str(header.step))
            else:
                groups.append(request.group)
        assert header is not None
        spans = [
            span
            for group in groups
            for trajectory in group.trajectories
            for history in trajectory.histories
            for span in history.tokens.spans
        ]
        learned = [trajectory for group in groups for trajectory in group.trajectories]
        await asyncio.sleep(self.fleet.step_seconds)
        here = self._expect(header.job_id, header.step - 1)
        here.step = header.step
        here.weights = learned_from(here.weights + self.noise, learned)
        self.taken.append((header.job_id, header.step))
        self.given.append(groups)
        self.ages[header.step] = [span.weights_version for span in spans]
        await self.reached("step:taken", str(header.step))
        skipped = {g.id: self.skips or g.skip_reason for g in groups}
        return trainer_pb.StepResponse(
            step=header.step,
            metrics={
                "loss": 1 / header.step,
                "kl_reference": 0.01,
                "seconds_forward": 0.1,
                **self.tells,
            },
            skipped_groups={group: reason for group, reason in skipped.items() if reason},
        )

    async def Save(self, request: Any, context: Any) -> trainer_pb.SaveResponse:
        await self.reached("save:begin", str(request.step))
        here = self._expect(request.job_id, request.step)
        files = {
            "adapter/adapter_config.json": b"{}",
            "adapter/adapter_model.safetensors": here.weights.encode(),
            **self.ballast,
        }
        if request.state == trainer_pb.STATE_SAVING_UNSPECIFIED:
            files |= _state(here)
        version = await self.fleet.client.push(
            files,
            registry_pb.Manifest(
                model=request.job_id,
                version=request.step,
                kind=registry_pb.VERSION_KIND_ADAPTER,
                base_model=here.base_model,
                group_ids=request.group_ids,
                metrics={**request.metrics, **({"loss": 1 / here.step} if here.step else {})},
            ),
            request_id=f"{request.job_id}/{request.step}",
            timeout_s=2.0,
        )
        await self.reached("save:published", str(request.step))
        if request.state == trainer_pb.STATE_SAVING_BEHIND:
            self._store_behind(request.job_id, here)
        return trainer_pb.SaveResponse(
            version=request.step, manifest_digest=version.manifest_digest
        )

    async def SaveState(self, request: Any, context: Any) -> trainer_pb.SaveStateResponse:
        await self.reached("state:awaited", str(request.step))
        key = (request.job_id, request.step)
        known = self.states.get(key)
        # As the real one: what failed is stored anew by who asks for it.
        if known is None or (known.done() and (known.cancelled() or known.exception())):
            self._store_behind(request.job_id, self._expect(*key))
        await asyncio.shield(self.states[key])
        return trainer_pb.SaveStateResponse()

    def _store_behind(self, job: str, here: _Opened) -> None:
        self.states[job, here.step] = asyncio.create_task(self._store(job, here.step, _state(here)))

    async def _store(self, job: str, step: int, state: dict[str, bytes]) -> None:
        await self.reached("state:begin", str(step))
        described = await self.fleet.client.upload(state, timeout_s=2.0)
        with suppress(AlreadyExistsError):
            await self.fleet.client.add_state(job, step, described, timeout_s=2.0)
        await self.reached("state:stored", str(step))

    async def Close(self, request: Any, context: Any) -> trainer_pb.CloseResponse:
        await self.reached("close", request.job_id)
        self.opened.pop(request.job_id, None)
        return trainer_pb.CloseResponse()

    def _expect(self, job: str, step: int) -> _Opened:
        here = self.opened.get(job)
        if here is None:
            raise FailedPreconditionError(f"{job} is not open", reason="JOB_NOT_OPEN")
        if here.step != step:
            raise FailedPreconditionError(f"is at {here.step}, not {step}", reason="WRONG_STEP")
        return here

    async def _fetch(self, job: str, version: int) -> str:
        if not has_state(await self.fleet.client.get_version(job, version)):
            raise FailedPreconditionError(
                f"{job}@{version} has weights alone", reason="STATE_NOT_STORED"
            )
        return await self.fleet.weights_of(job, version)


def _state(here: _Opened) -> dict[str, bytes]:
    return {"state/state.json": json.dumps({"step": here.step}).encode()}
