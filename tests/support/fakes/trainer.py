"""`ports.Trainer` and `ports.Trainers` in memory, by the rules of `podium_trainer.worker`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from podium.core.errors import (
    FailedPreconditionError,
    PodiumError,
    ResourceExhaustedError,
    Violation,
)
from podium.core.skip_reasons import ALL_FAILED, ZERO_VARIANCE
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.trainer.v1 import trainer_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.ports import JobRecord, TrainerState
from podium_controller.domain.waits import OnWait
from support.fakes.registry import FakeRegistry, Weights
from support.fakes.wire import Later, Wire


@dataclass
class _Session:
    job_id: str
    step: int
    weights: Weights
    parent: int | None
    published: int | None
    base_model: str
    stored: int | None = None
    """The step whose state the registry has."""
    held: _Held | None = None
    """The copy of a state that is on its way."""


@dataclass
class _Held:
    step: int
    weights: Weights
    error: PodiumError | None = None
    done: bool = False


class FakeTrainer:
    """A trainer of every job in turn, or of several. Its weights are what they were trained on."""

    def __init__(self, registry: FakeRegistry, wire: Wire | None = None) -> None:
        self._registry = registry
        self._wire = wire or Wire()
        self._sessions: dict[str, _Session] = {}
        self.rooms = 1
        """Jobs that it takes at once."""
        self.projects: dict[str, str] = {}
        """Of each job that was opened."""
        self.noisy = False
        """Whether the same step comes out otherwise each time, as it may on a GPU."""
        self.warnings: list[str] = []
        """What it says at each opening."""
        self.taken: list[tuple[str, int]] = []
        self.told: dict[int, set[object]] = {}
        """What it was told to learn at each step, however often."""

    @property
    def job(self) -> str:
        """The job that is open, of several the first."""
        return next(iter(self._sessions), "")

    def forget(self) -> None:
        """What its process held is lost."""
        self._sessions.clear()

    async def ready(self, on_wait: OnWait) -> bool:
        return False

    async def state(self) -> TrainerState:
        def handle() -> TrainerState:
            return TrainerState("", self.rooms, frozenset(self._sessions))

        return await self._wire.call("trainer", "state", handle)

    async def open(self, request: pb.OpenRequest) -> pb.OpenResponse:
        job_id = request.job_id
        at = request.resume_version if request.HasField("resume_version") else None

        def handle() -> pb.OpenResponse:
            here = self._sessions.get(job_id)
            if here is None and len(self._sessions) >= self.rooms:
                open_jobs = ",".join(self._sessions)
                raise ResourceExhaustedError(
                    f"this trainer has {open_jobs} open",
                    reason="TRAINER_BUSY",
                    metadata={"job_id": open_jobs},
                )
            self.projects[job_id] = request.project
            if here is None or not _is_at(here, at):
                self._sessions.pop(job_id, None)
                weights: Weights = (("fresh", request.seed),)
                if at is not None:
                    self._wire.reach("registry")
                    weights = self._registry.resume(job_id, at)
                here = _Session(job_id, at or 0, weights, at, at, request.base_model, at)
                self._sessions[job_id] = here
            return pb.OpenResponse(step=here.step, trainable_parameters=1, warnings=self.warnings)

        return await self._wire.call("trainer", "open", handle)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> pb.StepResponse:
        learned = tuple(fingerprint(group) for group in groups)
        self.told.setdefault(step, set()).add(learned)
        skipped = {group.id: reason for group in groups if (reason := _useless(group))}

        def handle() -> Later:
            self._expect(job_id, step - 1)
            return Later(take)

        def take() -> pb.StepResponse:
            here = self._expect(job_id, step - 1)
            here.step, here.published = step, None
            self.taken.append((job_id, step))
            noise = len(self.taken) if self.noisy else 0
            here.weights = (*here.weights, (step, learned, noise))
            trained = len(groups) - len(skipped)
            metrics = {"loss": 1 / step, "tokens_trained": 2.0 * trained}
            return pb.StepResponse(step=step, metrics=metrics, skipped_groups=skipped)

        return await self._wire.call("trainer", "step", handle)

    async def save(self, request: pb.SaveRequest) -> pb.SaveResponse:
        job_id, step = request.job_id, request.step
        answer = pb.SaveResponse(version=step)

        def handle() -> Later | pb.SaveResponse:
            here = self._expect(job_id, step)
            if here.published is not None:
                if request.state == pb.STATE_SAVING_BEHIND:
                    self._copy_state(here)
                return answer
            if request.state == pb.STATE_SAVING_BEHIND and _is_on_its_way(here.held):
                return Later(handle)
            manifest = registry_pb.Manifest(
                model=job_id,
                version=step,
                base_model=here.base_model,
                group_ids=request.group_ids,
                metrics=request.metrics,
            )
            if step:
                manifest.metrics["loss"] = 1 / step
            if here.parent is not None:
                manifest.parents.add(model=job_id, version=here.parent)
            weights = here.weights

            # The weights are copied: the trainer may be opened elsewhere before they are stored.
            def publish() -> pb.SaveResponse:
                try:
                    self._wire.reach("registry")
                    self._registry.create(manifest, weights)
                    if request.state == pb.STATE_SAVING_UNSPECIFIED:
                        self._registry.add_state(job_id, step, weights)
                        here.stored = step
                finally:
                    if request.state == pb.STATE_SAVING_BEHIND:
                        self._hold(here, step, weights)
                if self._sessions.get(job_id) is here:
                    here.parent = step
                    if here.step == step:
                        here.published = step
                return answer

            return Later(publish)

        return await self._wire.call("trainer", "save", handle)

    async def save_state(self, job_id: str, step: int) -> None:
        def handle() -> Later | None:
            here = self._sessions.get(job_id)
            if here is None:
                here = self._expect(job_id, step)
            if here.stored == step:
                return None
            if here.held is None or here.held.step != step:
                self._expect(job_id, step)
                if _is_on_its_way(here.held):
                    return Later(handle)
                self._copy_state(here)
            elif here.held.error is not None:
                # It failed, and is tried again.
                self._hold(here, step, here.held.weights)
            return Later(lambda: wait(here))

        def wait(here: _Session) -> Later | None:
            if here.stored == step:
                return None
            held = here.held
            if held is not None and held.error is not None:
                raise held.error
            return Later(lambda: wait(here))

        await self._wire.call("trainer", "save", handle)

    def _copy_state(self, here: _Session) -> None:
        if here.stored != here.step and (here.held is None or here.held.step != here.step):
            self._hold(here, here.step, here.weights)

    def _hold(self, here: _Session, step: int, weights: Weights) -> None:
        held = here.held = _Held(step, weights)

        def store() -> None:
            held.done = True
            try:
                self._wire.reach("registry")
                self._registry.add_state(here.job_id, step, weights)
                here.stored = step
            except PodiumError as error:
                held.error = error

        self._wire.behind("trainer", store)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        def handle() -> None:
            self._sessions.pop(job_id, None)

        await self._wire.call("trainer", "close", handle)

    def _expect(self, job_id: str, step: int) -> _Session:
        here = self._sessions.get(job_id)
        if here is None:
            raise FailedPreconditionError(f"job {job_id} is not open here", reason="JOB_NOT_OPEN")
        if here.step != step:
            raise FailedPreconditionError(
                f"the weights are at step {here.step}, not {step}", reason="WRONG_STEP"
            )
        return here


class FakeTrainers:
    """See `podium_controller.grpc_peers.peers.FixedTrainer`."""

    own = 1

    def __init__(self, trainer: FakeTrainer) -> None:
        self._trainer = trainer
        self.wrong: list[Violation] = []

    async def violations(self, spec: spec_pb2.TrainerSpec) -> list[Violation]:
        return self.wrong

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        return 0

    def of(self, job: JobRecord) -> FakeTrainer:
        return self._trainer

    async def retain(self, job_ids: Collection[str]) -> None:
        pass


def fingerprint(group: trajectory_pb2.Group) -> tuple[object, ...]:
    """What a trainer learns from a group."""
    return (
        group.id,
        group.skip_reason,
        tuple((t.id, t.environment_reward, t.reward) for t in group.trajectories),
    )


def _is_on_its_way(held: _Held | None) -> bool:
    return held is not None and not held.done


def _is_at(here: _Session, version: int | None) -> bool:
    if version is None:
        return here.step == 0 and here.parent is None
    return here.published == version


def _useless(group: trajectory_pb2.Group) -> str:
    failed = trajectory_pb2.STOP_REASON_FAILED
    if all(each.stop_reason == failed for each in group.trajectories):
        return ALL_FAILED
    rewards = {each.reward for each in group.trajectories if each.HasField("reward")}
    return group.skip_reason or (ZERO_VARIANCE if len(rewards) == 1 else "")
