"""The trainer and the registry together: a step is taken when its version is published."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from podium.core.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    InternalError,
    ResourceExhaustedError,
)
from podium.jobs.v1 import job_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain import job_states
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import Ledger, Registry, Trainer
from podium_controller.domain.step_metrics import STEP_METRICS
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import OPEN, PUBLISH, TRAIN, Reporter

TRAIN_PREFIX = "train/"
SECONDS_PREFIX = "seconds/"
SKIPPED_PREFIX = "groups_skipped/"
_NOT_HELD = ("JOB_NOT_OPEN", "WRONG_STEP")


@dataclass(frozen=True)
class Published:
    """A version that exists: the groups that it consumed and the numbers of its step."""

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

    async def find(self, version: int) -> Published | None:
        """What the registry has of a version; None when it is not published."""
        found = await self._recovery.run("registry", lambda: self._look(version))
        return None if found is None else from_manifest(found.manifest)

    async def ready(self) -> bool:
        """Returns when the trainer can be opened; see `ports.Trainer.ready`."""
        async with self._reporter.waiting() as on_wait:
            return await self._trainer.ready(on_wait)

    async def open(self, version: int | None) -> None:
        """Opens the trainer at a published version; None for a new job.

        Version 0 of a new job is published too.
        """

        async def call() -> None:
            at = version
            if at is None and await self._look(0) is not None:
                at = 0
            await self._open(at)
            if at is None:
                async with self._reporter.timed(PUBLISH):
                    await self._trainer.save(trainer_pb.SaveRequest(job_id=self._job_id, step=0))

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
                found = await self._look(step)
                if found is not None:
                    await self._open(step)
                    return from_manifest(found.manifest)
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
                found = await self._look(step)
                if found is None or list(found.manifest.group_ids) != [g.id for g in groups]:
                    raise
                await self._open(step)
                return from_manifest(found.manifest)

        async def rebuild() -> bool:
            nonlocal rebuilt
            rebuilt = True
            if taken is not None:
                # Not published yet, and the trainer has it: a full disk costs no second training.
                await self._look(step)
                return False
            if await self._look(step) is None:
                await self._open(step - 1)
            return True

        return await self._recovery.run("trainer", call, rebuild, self.ready)

    async def restore(self, version: int, damage: DataLossError) -> None:
        """Opens the trainer at a version whose own files are damaged.

        The steps since the newest whole version before it are taken again, from the groups
        that are stored for them (docs/decisions/0022). Saving what comes of it mends the files,
        where it is the same bytes.

        Raises:
            JobFailedError: VERSION_DAMAGED: there is nothing whole to begin at.
        """
        for base in await self._before(version):
            replay = functools.partial(self._replay, base, version, damage)
            with suppress(DataLossError):
                return await self._recovery.run("trainer", replay, ready=self.ready)
        raise version_damaged(self._job_id, version, damage)

    async def _before(self, version: int) -> list[int | None]:
        """The versions before one that are there, newest first; None for the beginning."""
        forked = self._spec.HasField("fork")
        first = self._spec.fork.version if forked else 0
        numbers = range(version - 1, first - 1, -1)
        found: list[int | None] = [n for n in numbers if await self.find(n) is not None]
        return found if forked else [*found, None]

    async def _replay(self, base: int | None, version: int, damage: DataLossError) -> None:
        await self._open(base)
        first = 0 if base is None else base + 1
        where = "the beginning" if base is None else f"version {base}, the newest whole one"
        await self._reporter.warn(
            f"version {version} is damaged ({damage.message}); the job goes on from {where}, and"
            f" takes the steps up to {version} again from their stored groups",
            version,
        )
        for step in range(first, version + 1):
            if step:
                stored = await self._ledger.stored_groups(self._job_id, step)
                if not stored:
                    raise version_damaged(self._job_id, version, damage)
                groups = [stored[position].group for position in sorted(stored)]
                await self._trainer.step(self._job_id, step, groups)
            await self._save_again(step)

    async def _save_again(self, step: int) -> None:
        found = await self._look(step)
        if found is None:
            return
        manifest = found.manifest
        try:
            await self._trainer.save(
                trainer_pb.SaveRequest(
                    job_id=self._job_id,
                    step=step,
                    group_ids=manifest.group_ids,
                    metrics=manifest.metrics,
                )
            )
        except AlreadyExistsError:
            await self._reporter.warn(
                f"what step {step} came to again is not bit for bit version {step}, whose files"
                " stay damaged; the job goes on with it",
                step,
            )
        else:
            await self._reporter.event(
                pb.EVENT_TYPE_RECOVERY, f"version {step} is whole again", step
            )

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
        async with self._reporter.timed(PUBLISH, seconds, step=step):
            saved = await self._trainer.save(
                trainer_pb.SaveRequest(
                    job_id=self._job_id, step=step, group_ids=group_ids, metrics=metrics
                )
            )
        if saved.version != step:
            raise InternalError(f"the trainer saved step {step} as version {saved.version}")
        return Published(step, group_ids, metrics, dict(taken.skipped_groups))

    async def _look(self, version: int) -> registry_pb.Version | None:
        return await self._registry.version(self._job_id, version)

    async def _open(self, version: int | None) -> None:
        request = trainer_pb.OpenRequest(
            job_id=self._job_id,
            base_model=self._spec.base_model,
            training=self._spec.training,
            seed=self._spec.seed,
            resume_version=version,
        )
        # A phase of its own: loading a model takes minutes where publishing takes seconds.
        async with self._reporter.timed(OPEN, step=version or 0):
            try:
                opened = await self._trainer.open(request)
            except ResourceExhaustedError as error:
                other = error.metadata.get("job_id", "")
                if error.reason != "TRAINER_BUSY" or not await self._is_idle(other):
                    raise
                # A job that holds nothing any more; its trainer could not be told when it ended.
                await self._trainer.close(other)
                opened = await self._trainer.open(request)
        if opened.step != (version or 0):
            raise InternalError(f"the trainer opened version {version} at step {opened.step}")

    async def _is_idle(self, job_id: str) -> bool:
        state = await self._ledger.state_of(job_id) if job_id else None
        return state in job_states.ENDED | job_states.RESTING


def version_damaged(job_id: str, version: int, damage: DataLossError) -> JobFailedError:
    """What ends a job that cannot go on from a version, nor from one before it."""
    return JobFailedError(
        f"version {job_id}@{version} is damaged, and could not be made again: {damage.message}."
        f" Push its files again, or submit a job that goes on from an older version, with"
        f" `--set fork.model={job_id} --set fork.version=N`",
        reason="VERSION_DAMAGED",
        metadata={"version": str(version)},
    )


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
