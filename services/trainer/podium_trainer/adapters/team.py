"""The processes of one trainer in step: the first leads, the others do as it says.

The first process serves podium.trainer.v1. Before it opens a job, takes a step or copies
its state it says so, and every process does the same with its own shard. What is refused
is refused by all of them alike. Anything else that goes wrong in one process ends it,
which ends the others: they come back together, and the job at its last version.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from podium.core.errors import PodiumError, ResourceExhaustedError
from podium.local.models import digest, resolve
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_trainer.adapters.versions import FollowerVersions
from podium_trainer.domain.sharing import SlotClaim
from podium_trainer.learner.base import Base
from podium_trainer.learner.checkpoint import Checkpoint, Saving
from podium_trainer.learner.gpu import GpuLostError, GpuMemoryError
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.precision import Arithmetic, arithmetic
from podium_trainer.learner.session import Compute, JobConfig, Session, StepOutcome
from podium_trainer.learner.sharded import Shards

logger = logging.getLogger(__name__)


class _Command(Enum):
    OPEN = "open"
    TRAIN = "train"
    CHECKPOINT = "checkpoint"
    STORE_STATE = "store state"
    CLOSE = "close"
    STOP = "stop"


class Team:
    """What the first process calls; with one process, nothing but the session itself."""

    def __init__(self, ranks: Ranks, compute: Compute, *, shares: bool = False) -> None:
        """`shares`: sessions that train an adapter have the base model in common."""
        assert not (shares and ranks.sharded), "sharded weights belong to one job"
        self._ranks = ranks
        self._compute = compute
        self._shares = shares
        self._base: Base | None = None

    def claim(self, config: JobConfig) -> SlotClaim:
        """What the job takes of a trainer."""
        whole = config.training.trainable == spec_pb2.TRAINABLE_KIND_FULL
        return SlotClaim(
            config.job_id, config.base_model, str(self._arithmetic(config)), whole=whole
        )

    def open(self, config: JobConfig, checkpoint: Checkpoint | None) -> Session:
        """Loads the base model, unless it is held; goes on from `checkpoint`, or starts fresh.

        Raises:
            NotFoundError: there is no such base model.
            ResourceExhaustedError: TRAINER_BUSY, its files are not those that are held.
            PodiumError: as `Session`.
        """
        if self._shares and not self.claim(config).whole:
            return self._open_shared(config, checkpoint)
        self._tell(_Command.OPEN, _wire(config), checkpoint and _outline(checkpoint))
        if checkpoint is not None and isinstance(checkpoint.shards, Path):
            checkpoint = replace(checkpoint, shards=self._ranks.nearest(checkpoint.shards))
        return _open(config, checkpoint, self._compute, self._ranks)

    def _open_shared(self, config: JobConfig, checkpoint: Checkpoint | None) -> Session:
        folder = resolve(config.base_model)
        found = digest(folder)
        wanted = self._arithmetic(config)
        base = self._base
        if base is None:
            base = Base(folder, found, wanted, self._compute.attention, self._ranks.device)
            self._base = base
        # Its files may have changed since the first job was opened.
        if (base.digest, base.arithmetic) != (found, wanted):
            raise ResourceExhaustedError(
                f"the files of {config.base_model} are {found} in {wanted}; this trainer holds "
                f"{base.digest} in {base.arithmetic}, and allowed are jobs of that until all are "
                "closed",
                reason="TRAINER_BUSY",
                metadata={"held": "base_model", "base_model": config.base_model},
            )
        return Session(config, folder, found, self._compute, checkpoint, self._ranks, base)

    def _arithmetic(self, config: JobConfig) -> Arithmetic:
        compute = self._compute
        return arithmetic(config.training, compute.bfloat16, compute.products, self._ranks.device)

    def drop_base(self) -> None:
        """Frees the base model that sessions had in common, when none is left."""
        self._base = None

    def train(
        self,
        session: Session,
        groups: Sequence[trajectory_pb2.Group],
        cancelled: Callable[[], bool],
    ) -> StepOutcome:
        """See `Session.train`."""
        self._tell(_Command.TRAIN, [group.SerializeToString() for group in groups])
        return session.train(groups, lambda: self._ranks.agree(cancelled()))

    def checkpoint(self, session: Session, parent: int | None, saving: Saving) -> Checkpoint:
        """See `Session.checkpoint`; `parent` is the version that it comes after.

        The others store their parts of whole weights meanwhile.
        """
        self._tell(_Command.CHECKPOINT, parent, saving)
        return session.checkpoint(saving)

    def store_state(self) -> None:
        """Has the others store their parts of the state again that they copied last."""
        self._tell(_Command.STORE_STATE)

    def broken_by(self, error: Exception) -> bool:
        """Whether this cannot go on: a GPU failed, or the processes may no longer be in step.

        Only refusals are alike in all of them, and a GPU's full memory is none of those.
        """
        refused = isinstance(error, PodiumError) and not isinstance(error, GpuMemoryError)
        return isinstance(error, GpuLostError) or (self._ranks.sharded and not refused)

    def close(self) -> None:
        """Has the others free their shards."""
        self._tell(_Command.CLOSE)

    def stop(self) -> None:
        """Has the others end."""
        self._tell(_Command.STOP)

    def _tell(self, command: _Command, *arguments: object) -> None:
        if self._ranks.sharded:
            self._ranks.tell((command, *arguments))


def follow(ranks: Ranks, compute: Compute, versions: FollowerVersions) -> None:
    """Does what the first process says until it says to end.

    Raises:
        Exception: anything that is not refused by all processes alike; the process must end.
    """
    session: Session | None = None
    held: Checkpoint | None = None
    storing = ThreadPoolExecutor(1, "store")
    behind = ThreadPoolExecutor(1, "state")
    while True:
        command, *arguments = ranks.tell()
        logger.debug("told to %s", command.value)
        try:
            if command is _Command.STOP:
                return
            if command is _Command.OPEN:
                session = None
                # The first asks for it no more.
                behind.submit(_replaced, held)
                held = None
                wire, outline = arguments
                config = _unwire(wire)
                if outline is not None and outline.is_full:
                    outline = replace(
                        outline, shards=_nearest_shards(outline, config, versions, ranks)
                    )
                session = _open(config, outline, compute, ranks)
            elif command is _Command.CLOSE:
                session = None
            elif session is not None and command is _Command.TRAIN:
                groups = [trajectory_pb2.Group.FromString(data) for data in arguments[0]]
                session.train(groups, lambda: ranks.agree(False))
            elif session is not None and command is _Command.CHECKPOINT:
                parent, saving = arguments
                checkpoint, job = session.checkpoint(saving), session.config
                if not checkpoint.is_full:
                    continue
                if saving is not Saving.STATE:
                    wanted = (job.job_id, job.base_model, checkpoint, parent, saving is Saving.WITH)
                    storing.submit(_store, versions.store, *wanted)
                if saving in (Saving.BEHIND, Saving.STATE):
                    # A part that is not stored yet is, before the next one.
                    behind.submit(_replaced, held)
                    held = checkpoint
                    behind.submit(_store, versions.store_state, held)
            elif command is _Command.STORE_STATE and held is not None:
                behind.submit(_store, versions.store_state, held)
        except PodiumError as error:
            logger.info("refused: %s", error.message)


def _nearest_shards(
    outline: Checkpoint, config: JobConfig, versions: FollowerVersions, ranks: Ranks
) -> Path:
    mine = None
    # One process of each machine fetches, and on the first's it is the first.
    if os.environ.get("LOCAL_RANK") == "0":
        try:
            mine = versions.fetch_shards(config.job_id, outline.step)
        except PodiumError as error:
            raise RuntimeError(f"the shards cannot be fetched: {error.message}") from error
    return ranks.nearest(mine)


def _replaced(held: Checkpoint | None) -> None:
    if held is not None and isinstance(held.shards, Shards):
        held.shards.close()


def _store(store: Callable[..., None], *arguments: Any) -> None:
    try:
        store(*arguments)
    except Exception:
        logger.exception("the first process is gone; ending this one")
        os._exit(1)


def _open(
    config: JobConfig, checkpoint: Checkpoint | None, compute: Compute, ranks: Ranks
) -> Session:
    folder = resolve(config.base_model)
    if ranks.sharded:
        # FSDP's modules hold each other: the job before would be in memory until Python looks.
        gc.collect()
    return Session(config, folder, digest(folder), compute, checkpoint, ranks)


def _outline(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint without its numbers, which reach each process as its own shard."""

    def outlined(tensors: Any) -> dict[str, torch.Tensor]:
        return {name: tensor.to("meta") for name, tensor in tensors.items()}

    # Counts of updates are no shards: they are the same everywhere.
    return replace(
        checkpoint,
        shards=None,
        weights=outlined(checkpoint.weights),
        optimizer={
            name: tensor if tensor.dim() == 0 else tensor.to("meta")
            for name, tensor in checkpoint.optimizer.items()
        },
    )


def _wire(config: JobConfig) -> tuple[Any, ...]:
    return config.job_id, config.base_model, config.training.SerializeToString(), config.seed


def _unwire(values: tuple[Any, ...]) -> JobConfig:
    job_id, base_model, training, seed = values
    return JobConfig(job_id, base_model, spec_pb2.TrainingSpec.FromString(training), seed)
