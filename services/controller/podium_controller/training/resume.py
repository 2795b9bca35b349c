"""Brings a job's trainer to a version, from the newest one before it that has state.

Weights are published before their state is stored, and not every step's state is stored: a
version may have none. The steps after the newest one that has are taken again, from the groups
that are stored for them (docs/decisions/0057).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress

from podium.core.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    InternalError,
    NotFoundError,
    ResourceExhaustedError,
)
from podium.core.version_state import state_in
from podium.jobs.v1 import job_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.domain import job_states
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import Ledger, Trainer
from podium_controller.domain.registry import Registry
from podium_controller.domain.retention import last_step_with_state
from podium_controller.pools.projects import project_of
from podium_controller.training.recovery import Recovery
from podium_controller.training.reporter import OPEN, TRAIN, Reporter

NOT_STORED = "STATE_NOT_STORED"
STATE_LOST = "STATE_LOST"


class Resume:
    """Opens one job's trainer, and has it take steps again that it took before."""

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
        self._at: int | None = None
        self._target: int | None = None
        """The version that was last opened, until `catch_up` is there; None for none."""

    async def open(self, version: int | None) -> None:
        """Opens the trainer at a version, or at the newest before it that has state.

        `catch_up` does the rest, which takes as long as the steps do. None is a new job.

        Raises:
            JobFailedError: STATE_LOST: no version has state.
        """
        self._at = self._target = version
        try:
            await self.open_at(version)
        except FailedPreconditionError as error:
            if error.reason != NOT_STORED:
                raise
            assert version is not None, "the beginning needs no state"
            base = await self._base(version)
            await self.open_at(base)
            self._at = base or 0
            where = "the beginning" if base is None else f"version {base}"
            await self._reporter.event(
                pb.EVENT_TYPE_RECOVERY,
                f"version {version} has no state; the job goes on from {where}, and takes the"
                f" steps up to {version} again from their stored groups",
                version,
            )

    async def catch_up(self) -> None:
        """Takes the steps up to the version that was opened, and sees to it that state is stored.

        Raises:
            JobFailedError: STATE_LOST: a step's groups are not stored.
        """
        if self._target is None or self._at is None:
            return
        target = self._target
        behind = self._at < target
        while self._at < target:
            await self._take_again(self._at + 1)
            self._at += 1
        if behind:
            # What is open is that version, to the trainer too.
            await self.save_again(target)
        newest = await self._registry.resumable(self._job_id, target)
        due = last_step_with_state(self._spec, target)
        if newest is None or newest.manifest.version < due:
            # What its last trainer was to store is lost, or on its way still.
            await self.store_state(target)
        self._target = None

    async def store_state(self, version: int) -> None:
        """Returns when the trainer has stored the state of a version, if that is still there."""
        try:
            await self._trainer.save_state(self._job_id, version)
        except NotFoundError as error:
            await self._reporter.warn(
                f"version {version} was deleted before its state was stored ({error.message})",
                version,
            )

    async def _take_again(self, step: int) -> None:
        groups = await self._groups_of(step)
        if not groups:
            raise JobFailedError(
                f"version {self._target} has no state, and the groups of step {step} are not"
                f" stored, from which it could be made again. Submit a job that goes on from a"
                f" version with state, with `--set fork.model={self._job_id}`",
                reason=STATE_LOST,
                metadata={"version": str(self._target), "step": str(step)},
            )
        async with self._reporter.timed(TRAIN, step=step):
            await self._trainer.step(self._job_id, step, groups)

    async def _groups_of(self, step: int) -> list[trajectory_pb2.Group]:
        """What a step took, in its order; empty where it is not stored any more."""
        stored = await self._ledger.stored_groups(self._job_id, step)
        return [stored[position].group for position in sorted(stored)]

    async def _base(self, version: int) -> int | None:
        """The newest version before one that has state; None for the beginning."""
        found = await self._registry.resumable(self._job_id, version - 1) if version else None
        if found is not None:
            return found.manifest.version
        if self._spec.HasField("fork"):
            raise JobFailedError(
                f"no version of {self._job_id} has state any more to go on from. Submit a job"
                f" with `--set fork.model={self._spec.fork.model}`, from where this one started",
                reason=STATE_LOST,
                metadata={"version": str(version)},
            )
        return None

    async def restore(self, version: int, damage: DataLossError) -> None:
        """Opens the trainer at a version whose own files are damaged.

        The steps since the newest whole version before it are taken again, from the groups
        that are stored for them (docs/decisions/0022). Saving what comes of it mends the files,
        where it is the same bytes.

        Raises:
            JobFailedError: VERSION_DAMAGED: there is nothing whole to begin at.
        """
        self._target = None
        for base in await self._before(version):
            replay = functools.partial(self._replay, base, version, damage)
            with suppress(DataLossError):
                return await self._recovery.run("trainer", replay, ready=self.ready)
        raise version_damaged(self._job_id, version, damage)

    async def ready(self) -> bool:
        """Returns when the trainer can be opened; see `ports.Trainer.ready`."""
        async with self._reporter.waiting() as on_wait:
            return await self._trainer.ready(on_wait)

    async def _before(self, version: int) -> list[int | None]:
        """The versions before one that have state, newest first; None for the beginning."""
        found: list[int | None] = []
        while version > 0:
            look = functools.partial(self._registry.resumable, self._job_id, version - 1)
            each = await self._recovery.run("registry", look)
            if each is None:
                break
            version = each.manifest.version
            found.append(version)
        return found if self._spec.HasField("fork") else [*found, None]

    async def _replay(self, base: int | None, version: int, damage: DataLossError) -> None:
        await self.open_at(base)
        first = 0 if base is None else base + 1
        where = "the beginning" if base is None else f"version {base}, the newest whole one"
        await self._reporter.warn(
            f"version {version} is damaged ({damage.message}); the job goes on from {where}, and"
            f" takes the steps up to {version} again from their stored groups",
            version,
        )
        for step in range(first, version + 1):
            if step:
                groups = await self._groups_of(step)
                if not groups:
                    raise version_damaged(self._job_id, version, damage)
                await self._trainer.step(self._job_id, step, groups)
            if await self.save_again(step, mends=True):
                await self._reporter.event(
                    pb.EVENT_TYPE_RECOVERY, f"version {step} is whole again", step
                )

    async def save_again(self, step: int, *, mends: bool = False) -> bool:
        """Publishes what a step came to again, which changes nothing but files that are damaged.

        With `mends` the files of its state too. False for a version that is gone, or that came
        out otherwise.
        """
        found = await self.look(step)
        if found is None:
            return False
        manifest = found.manifest
        behind = mends and bool(found.state_files)
        saving = trainer_pb.STATE_SAVING_BEHIND if behind else trainer_pb.STATE_SAVING_NONE
        if state_in(manifest):
            saving = trainer_pb.STATE_SAVING_UNSPECIFIED
        request = trainer_pb.SaveRequest(
            job_id=self._job_id,
            step=step,
            group_ids=manifest.group_ids,
            metrics=manifest.metrics,
            state=saving,
        )
        same = True
        try:
            await self._trainer.save(request)
        except AlreadyExistsError:
            same = False
            stays = ", whose files stay damaged" if mends else ""
            await self._reporter.warn(
                f"what step {step} came to again is not bit for bit version {step}{stays}; the job"
                " goes on with it",
                step,
            )
        if behind:
            await self.store_state(step)
        return same

    async def look(self, version: int) -> registry_pb.Version | None:
        """What the registry has of a version."""
        return await self._registry.version(self._job_id, version)

    async def open_at(self, version: int | None) -> None:
        """Opens the trainer at that version and no other.

        Raises:
            FailedPreconditionError: STATE_NOT_STORED: it has none, and is not open already.
        """
        request = trainer_pb.OpenRequest(
            job_id=self._job_id,
            base_model=self._spec.base_model,
            training=self._spec.training,
            seed=self._spec.seed,
            resume_version=version,
            project=project_of(self._spec),
        )
        # A phase of its own: loading a model takes minutes where publishing takes seconds.
        async with self._reporter.timed(OPEN, step=version or 0):
            try:
                opened = await self._trainer.open(request)
            except ResourceExhaustedError as error:
                idle = await self._idle(error) if error.reason == "TRAINER_BUSY" else []
                if not idle:
                    raise
                # Jobs that hold nothing any more; their trainer could not be told when they ended.
                for other in idle:
                    await self._trainer.close(other)
                opened = await self._trainer.open(request)
        if opened.step != (version or 0):
            raise InternalError(f"the trainer opened version {version} at step {opened.step}")
        await self._warn_once(opened.warnings)

    async def _warn_once(self, messages: Sequence[str]) -> None:
        """What the trainer says of the job, which it says at each opening."""
        if not messages:
            return
        past = await self._ledger.past(self._job_id, 1)
        told = {message for _, message in past.events}
        for message in messages:
            if message not in told:
                await self._reporter.warn(message)

    async def _idle(self, busy: ResourceExhaustedError) -> list[str]:
        """Of the jobs that a trainer has open, those that are over or rest."""
        resting = job_states.ENDED | job_states.RESTING
        there = filter(None, busy.metadata.get("job_id", "").split(","))
        return [each for each in there if await self._ledger.state_of(each) in resting]


def version_damaged(job_id: str, version: int, damage: DataLossError) -> JobFailedError:
    """What ends a job that cannot go on from a version, nor from one before it."""
    return JobFailedError(
        f"version {job_id}@{version} is damaged, and could not be made again: {damage.message}."
        f" Push its files again, or submit a job that goes on from an older version, with"
        f" `--set fork.model={job_id} --set fork.version=N`",
        reason="VERSION_DAMAGED",
        metadata={"version": str(version)},
    )
