"""A registry of checkpoints in memory, for tests of the trainer's worker."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import torch
from podium.core.errors import NotFoundError, UnavailableError
from podium_trainer.adapters.versions import Provenance, PublishedVersion
from podium_trainer.learner.checkpoint import Checkpoint


class KeptVersions:
    """`podium_trainer.adapters.versions.CheckpointStore`; it keeps what it is given as it is."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], Checkpoint] = {}
        self.provenance: dict[tuple[str, int], Provenance] = {}
        self.is_away = False

    async def fetch(self, job_id: str, version: int) -> tuple[Checkpoint, PublishedVersion]:
        self._reach()
        if (job_id, version) not in self.versions:
            raise NotFoundError(f"there is no {job_id}@{version}")
        return self.versions[job_id, version], _published(version)

    async def publish(
        self, job_id: str, checkpoint: Checkpoint, provenance: Provenance, *, with_state: bool
    ) -> PublishedVersion:
        self._reach()
        self.versions[job_id, checkpoint.step] = checkpoint
        self.provenance[job_id, checkpoint.step] = provenance
        return _published(checkpoint.step)

    async def add_state(self, job_id: str, checkpoint: Checkpoint) -> None:
        self._reach()
        whole = self.versions[job_id, checkpoint.step]
        self.versions[job_id, checkpoint.step] = replace(
            whole, optimizer=checkpoint.optimizer, rng=checkpoint.rng
        )

    def _reach(self) -> None:
        if self.is_away:
            raise UnavailableError("the registry is away")


def bits(checkpoint: Checkpoint) -> dict[str, str]:
    """A digest of each tensor of a checkpoint, the random state too, and what else it says."""
    tensors = {
        **{f"weights/{name}": tensor for name, tensor in checkpoint.weights.items()},
        **{f"optimizer/{name}": tensor for name, tensor in checkpoint.optimizer.items()},
        "rng": checkpoint.rng,
    }
    return {
        **{name: _digest(tensor) for name, tensor in tensors.items()},
        "step": str(checkpoint.step),
        "adapter": repr(sorted(checkpoint.adapter_config.items())),
        "base": checkpoint.base_model_digest,
        "config": checkpoint.config_digest,
    }


def _digest(tensor: torch.Tensor) -> str:
    data = tensor.detach().contiguous().view(torch.uint8) if tensor.dim() else tensor.view(1)
    return (
        f"{tensor.dtype}{list(tensor.shape)}" + hashlib.sha256(data.numpy().tobytes()).hexdigest()
    )


def _published(version: int) -> PublishedVersion:
    return PublishedVersion(version, f"sha256:{version}", 1)
