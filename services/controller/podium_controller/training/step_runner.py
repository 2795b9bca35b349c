"""The trainer and the registry together: a step is taken when its version is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from podium.core.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    InternalError,
)
from podium.core.version_state import has_state
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain.ports import Ledger, Trainer
from podium_controller.domain.registry import Registry
from podium_controller.domain.retention import stores_state
from podium_controller.domain.step_metrics import STEP_METRICS
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import PUBLISH, STATE, TRAIN, Reporter
from podium_controller.training.resume import Resume

TRAIN_PREFIX = "train/"
SECONDS_PREFIX = "seconds/"
SKIPPED_PREFIX = "groups_skipped/"
_NOT_HELD = ("JOB_NOT_OPEN", "WRONG_STEP")


@dataclass(frozen=True)
class Published:
    """A version in the registry: the groups that it trained on, and its step's metrics."""

    version: int
    group_ids: list[str]
    metrics: dict[str, float]
    skipped_groups: Mapping[str, str]


class StepRunner:
    """Takes one job's steps, each exactly once."""

    def __init__(
        self,
        job_id: str,
        spec: spec_pb2.JobSpec,
        trainer: Trainer,
        registry: Registry,
        ledger: Ledger,
        recovery: Recovery,
        reporter: Reporter,
    ) -> None:
        self._job_id = job_id
        self._spec = spec
        self._trainer = trainer
        self._registry = registry
        self._ledger = ledger
        self._recovery = recovery
        self._reporter = reporter
        self._resume = Resume(job_id, spec, trainer, registry, ledger, recovery, reporter)
        self._behind: int | None = None

    @property
    def awaited(self) -> int | None:
        """The version whose state may be on its way to the registry; None for none."""
        return self._behind

    async def find(self, version: int) -> Published | None:
        """Looks a version up in the registry; None when it is not published."""
        found = await self._recovery.run("registry", lambda: self._resume.look(version))
        return None if found is None else from_manifest(found.manifest)

    async def ready(self) -> bool:
        """Returns when the trainer can be opened; see `ports.Trainer.ready`."""
        return await self._resume.ready()

    async def open(self, version: int | None) -> None:
        """Opens the trainer at a published version; None for a new job.

        Version 0 of a new job is published too. Of a version without state the steps since the
        newest one that has it are taken again.
        """

        async def call() -> None:
            at = version
            if at is None and await self._resume.look(0) is not None:
                at = 0
            await self._reopen(at)
            if at is None:
                async with self._reporter.timed(PUBLISH):
                    await self._trainer.save(trainer_pb.SaveRequest(job_id=self._job_id, step=0))
            await self._resume.catch_up()

        await self._recovery.run("trainer", call, ready=self.ready)

    async def step(
        self,
        step: int,
        groups: Sequence[trajectory_pb2.Group],
        own_metrics: Mapping[str, float],
        seconds: dict[str, float],
    ) -> Published:
        """Trains on the groups and publishes the version, through any loss on the way.

        Args:
            own_metrics: the step's numbers so far, to be kept in the manifest.
            seconds: by phase; training and publishing are added.
        """
        rebuilt = False
        taken: trainer_pb.StepResponse | None = None

        async def call() -> Published:
            nonlocal taken
            if rebuilt:
                # The reply may have been lost, and not the step.
                found = await self._resume.look(step)
                if found is not None:
                    await self._reopen(step)
                    await self._resume.catch_up()
                    return from_manifest(found.manifest)
                if taken is None:
                    await self._resume.catch_up()
            if taken is None:
                async with self._reporter.timed(TRAIN, seconds, step=step):
                    taken = await self._trainer.step(self._job_id, step, groups)
            try:
                return await self._publish(step, groups, taken, own_metrics, seconds)
            except FailedPreconditionError as error:
                if error.reason in _NOT_HELD:
                    taken = None
                raise
            except AlreadyExistsError:
                # Stored late, for a controller that is gone: of the same groups, but on a GPU not
                # of the same bits. It is the step; what was taken here is not.
                found = await self._resume.look(step)
                if found is None or list(found.manifest.group_ids) != [g.id for g in groups]:
                    raise
                # With weights alone it cannot be opened: the job goes on with what was taken here.
                if has_state(found):
                    await self._reopen(step)
                return from_manifest(found.manifest)

        async def rebuild() -> bool:
            nonlocal rebuilt
            rebuilt = True
            if taken is not None:
                # Not published yet, and the trainer has it: a full disk costs no second training.
                await self._resume.look(step)
                return False
            if await self._resume.look(step) is None:
                await self._reopen(step - 1)
            return True

        return await self._recovery.run("trainer", call, rebuild, self.ready)

    async def restore(self, version: int, damage: DataLossError) -> None:
        """Opens the trainer at a version whose own files are damaged: see `Resume.restore`."""
        self._behind = None
        await self._resume.restore(version, damage)

    async def keep_state(self, version: int) -> None:
        """Returns when the state of the version that the trainer is at is stored."""

        async def call() -> None:
            await self._resume.catch_up()
            await self._resume.store_state(version)

        async def rebuild() -> bool:
            # A registry that is away is waited for here: each new opening would count as a loss.
            await self._resume.look(version)
            await self._reopen(version)
            return True

        await self._recovery.run("trainer", call, rebuild, self._resume.ready)
        self._behind = None

    async def _reopen(self, version: int | None) -> None:
        # Whatever was on its way, `catch_up` sees to it.
        self._behind = None
        await self._resume.open(version)

    async def _publish(
        self,
        step: int,
        groups: Sequence[trajectory_pb2.Group],
        taken: trainer_pb.StepResponse,
        own_metrics: Mapping[str, float],
        seconds: dict[str, float],
    ) -> Published:
        metrics = {
            **own_metrics,
            **{f"{SECONDS_PREFIX}{phase}": spent for phase, spent in seconds.items()},
            **{f"{TRAIN_PREFIX}{name}": value for name, value in taken.metrics.items()},
        }
        for reason in taken.skipped_groups.values():
            metrics[SKIPPED_PREFIX + reason] = metrics.get(SKIPPED_PREFIX + reason, 0.0) + 1
        group_ids = [group.id for group in groups]
        stores = stores_state(self._spec, step)
        if stores and self._behind is not None:
            # One state is on its way at a time: whatever crashes, the one before it is stored.
            async with self._reporter.timed(STATE, seconds, step=step):
                await self._resume.store_state(self._behind)
            self._behind = None
        async with self._reporter.timed(PUBLISH, seconds, step=step):
            request = trainer_pb.SaveRequest(
                job_id=self._job_id, step=step, group_ids=group_ids, metrics=metrics
            )
            request.state = trainer_pb.STATE_SAVING_NONE
            if stores:
                request.state = trainer_pb.STATE_SAVING_BEHIND
                self._behind = step
            saved = await self._trainer.save(request)
        if saved.version != step:
            raise InternalError(f"the trainer saved step {step} as version {saved.version}")
        return Published(step, group_ids, metrics, dict(taken.skipped_groups))


def from_manifest(manifest: registry_pb.Manifest) -> Published:
    """A step as its manifest tells it.

    The trainer writes its numbers under their own names; those that the
    controller gave it have their prefixes already.
    """
    metrics: dict[str, float] = {}
    for name, value in manifest.metrics.items():
        if "/" in name or name in STEP_METRICS:
            metrics[name] = value
        else:
            metrics[TRAIN_PREFIX + name] = value
    return Published(manifest.version, list(manifest.group_ids), metrics, {})
