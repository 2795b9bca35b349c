"""One open job: its policy, optimizer, random state and step.

Blocking; used from one thread at a time. Where several share a base model one of them is live, on
the device and with its random state in torch's generator; the others are parked in host memory.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from podium.core.contract import training_violations
from podium.core.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    Violation,
)
from podium.core.sft import HELDOUT_LOSS
from podium.kit.telemetry import traced, tracer
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_trainer.domain.batch import Batch, build_batch
from podium_trainer.domain.batch_training import rate_of, training_of
from podium_trainer.domain.heldout import divided
from podium_trainer.domain.mini_batches import ShuffleSeed
from podium_trainer.learner.adapter import check_same_shape
from podium_trainer.learner.base import Base
from podium_trainer.learner.checkpoint import Checkpoint, Saving
from podium_trainer.learner.heldout import mean_loss
from podium_trainer.learner.model import Policy
from podium_trainer.learner.network import constants
from podium_trainer.learner.optimizer import Optimizer, learning_rate
from podium_trainer.learner.parallel import Ranks, fill, owned, whole
from podium_trainer.learner.phases import Phases, done_by
from podium_trainer.learner.precision import arithmetic
from podium_trainer.learner.products import Products
from podium_trainer.learner.sharded import Shards, read_shards, shard_names
from podium_trainer.learner.step import take_step

logger = logging.getLogger(__name__)
_tracer = tracer(__name__)

_WEIGHTS, _OPTIMIZER = "weights.", "optimizer."


@dataclass(frozen=True)
class JobConfig:
    """What defines a job for its trainer; two opens of the same job are compared by it."""

    job_id: str
    base_model: str
    training: spec_pb2.TrainingSpec
    """With its defaults filled."""
    seed: int

    @property
    def digest(self) -> str:
        """Of the training specification."""
        data = self.training.SerializeToString(deterministic=True)
        return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Compute:
    """How this process computes; what is no type changes no result beyond float32's rounding."""

    row_tokens: int = 2048
    bfloat16: str = "auto"
    products: Products = Products.TORCH
    """`Products.BFLOAT16` rounds the factors of the frozen layers' products."""
    attention: str = ""
    """Empty for the device's."""
    tf32: bool = False
    """The one setting that makes float32 less than float32."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step did."""

    step: int
    metrics: dict[str, float]
    seconds: dict[str, float]
    """By phase."""
    batch: Batch


class Session:
    """A job between Open and Close."""

    def __init__(
        self,
        config: JobConfig,
        folder: Path,
        base_model_digest: str,
        compute: Compute,
        checkpoint: Checkpoint | None = None,
        ranks: Ranks | None = None,
        base: Base | None = None,
    ) -> None:
        """Loads the base model of `folder`; goes on from `checkpoint`, or starts fresh.

        It is live, and so no other may be. An adapter is put on `base`, if there is one.

        Raises:
            InvalidArgumentError: the model or the specification cannot train, or is not
                what the checkpoint was made with.
            DataLossError: the checkpoint's tensors do not fit its own configuration.
        """
        torch.set_float32_matmul_precision("high" if compute.tf32 else "highest")
        training = config.training
        self.config = config
        self.base_model_digest = base_model_digest
        self.step = 0
        self.torn = False
        """Whether a step ended after it had moved the weights: they are then no step's."""
        self._compute = compute
        self._ranks = ranks or Ranks()
        violations = training_violations(training, "training")
        if violations:
            raise InvalidArgumentError(violations=violations)
        chosen = arithmetic(training, compute.bfloat16, compute.products, self._ranks.device)
        if chosen.dtype == torch.float32 and training.dtype != spec_pb2.COMPUTE_DTYPE_FLOAT32:
            logger.info("on a CPU: bfloat16 weights, float32 arithmetic")
        self.policy = Policy(
            folder,
            config.base_model,
            training,
            seed=config.seed,
            dtype=chosen.dtype,
            products=chosen.products,
            attention=compute.attention,
            ranks=self._ranks,
            base=base,
        )
        self._parked_rng: torch.Tensor | None = None
        self._optimizer = Optimizer(self.policy.masters.weights, training)
        self._supervised: bool | None = None
        torch.manual_seed(config.seed)
        if checkpoint is not None:
            self._restore(checkpoint)

    def train(
        self, groups: Sequence[trajectory_pb2.Group], cancelled: Callable[[], bool]
    ) -> StepOutcome:
        """Takes one optimizer step; what it raises leaves all as it was, or the session torn.

        With no group to train on the step number advances and the weights stay. Groups that
        are held out are measured under the new weights.

        Raises:
            InvalidArgumentError: a token record contradicts itself.
            RequestCancelledError: `cancelled` said so before the last update.
            FailedPreconditionError: the gradient is not finite, or the session is torn.
        """
        if self.torn:
            raise FailedPreconditionError(
                "a step ended halfway; open the job again", reason="JOB_NOT_OPEN"
            )
        training = training_of(self.config.training, groups)
        phases = Phases(done_by(self._ranks.device))
        rate = rate_of(groups, learning_rate(training, self.step + 1))
        with traced(_tracer, "read_groups"), phases.measure("read"):
            taught, held = divided(groups, training.loss)
            batch = build_batch(taught, training, self.policy.vocabulary)
            heldout = build_batch(held, training, self.policy.vocabulary)
            batch.skipped_groups |= heldout.skipped_groups
        metrics: dict[str, float] = {
            "tokens_trained": 0,
            "tokens_packed": 0,
            "tokens_flat": 0,
            "trajectories_trained": 0,
        }
        if batch.samples:
            metrics = take_step(
                self.policy,
                self._optimizer,
                batch,
                training,
                ShuffleSeed(self.config.seed, self.step + 1),
                learning_rate=rate,
                row_tokens=self._compute.row_tokens,
                cancelled=cancelled,
                moved=lambda: self._move_weights(training.loss),
                phases=phases,
                ranks=self._ranks,
            )
        if heldout.samples:
            with traced(_tracer, "heldout"), phases.measure("heldout"):
                metrics[HELDOUT_LOSS] = mean_loss(
                    self.policy,
                    heldout,
                    training,
                    row_tokens=self._compute.row_tokens,
                    ranks=self._ranks,
                )
            metrics["heldout_tokens"] = heldout.trained_tokens
        self.step += 1
        self.torn = False
        metrics["learning_rate"] = rate
        metrics |= batch.too_long_metrics()
        metrics |= {f"seconds_{name}": value for name, value in phases.seconds.items()}
        return StepOutcome(self.step, metrics, phases.seconds, batch)

    def checkpoint(self, saving: Saving = Saving.WITH) -> Checkpoint:
        """Everything that the next step depends on, copied; every process must ask.

        Of whole weights the shards are being written when this returns. `saving` says what is to
        be stored: nothing else is copied.
        """
        weights, full = self.policy.masters.weights, not self.policy.adapter_config
        serves, resumes = saving is not Saving.STATE, saving is not Saving.NONE
        if full:
            served = {**weights, **constants(self.policy.network.causal)}
            mine = owned(served, self._ranks) if serves else {}
        else:
            mine = self.policy.experts.apart(whole(weights))
        return Checkpoint(
            step=self.step,
            weights=mine,
            adapter_config=self.policy.adapter_config,
            optimizer=whole(self._optimizer.state()) if resumes and not full else {},
            shards=Shards(self._shards(), self._ranks) if resumes and full else None,
            rng=torch.get_rng_state() if self._parked_rng is None else self._parked_rng.clone(),
            base_model_digest=self.base_model_digest,
            config_digest=self.config.digest,
            supervised=self._supervised,
        )

    def park(self) -> None:
        """Makes room for another session: adapter, moments and random state wait on the host."""
        if self._parked_rng is None:
            self._parked_rng = torch.get_rng_state()
        self._move(torch.device("cpu"))

    def unpark(self) -> None:
        """Is live again, exactly as it was."""
        self._move(self._ranks.device)
        if self._parked_rng is not None:
            torch.set_rng_state(self._parked_rng)
        self._parked_rng = None

    def _move(self, device: torch.device) -> None:
        self.policy.masters.move(device)
        self._optimizer.move(device)

    def _move_weights(self, loss: spec_pb2.LossSpec) -> None:
        """An update of a step is about to be applied."""
        self.torn = True
        supervised = loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
        if self._supervised not in (None, supervised):
            # Of gradients of another scale and another aim (docs/decisions/0103).
            self._optimizer.reset()
        self._supervised = supervised

    def _restore(self, checkpoint: Checkpoint) -> None:
        if checkpoint.base_model_digest != self.base_model_digest:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        "base_model",
                        f"{self.config.base_model} is {self.base_model_digest} here; the version "
                        f"to continue from was trained on {checkpoint.base_model_digest}",
                    )
                ],
                reason="BASE_MODEL_DIFFERS",
            )
        check_same_shape(self.policy.adapter_config, checkpoint.adapter_config)
        if isinstance(checkpoint.shards, Path):
            self._restore_shards(checkpoint.shards)
        else:
            self._restore_adapter(checkpoint)
        self.policy.masters.publish()
        torch.set_rng_state(checkpoint.rng)
        self.step = checkpoint.step
        self._supervised = checkpoint.supervised

    def _restore_adapter(self, checkpoint: Checkpoint) -> None:
        weights = self.policy.masters.weights
        shapes = {name: weight.shape for name, weight in weights.items()}
        stored = self.policy.experts.together(checkpoint.weights)
        if {name: tensor.shape for name, tensor in stored.items()} != shapes:
            raise DataLossError("the adapter's weights do not fit its configuration")
        for name, weight in weights.items():
            fill(weight, stored[name])
        self._optimizer.load(checkpoint.optimizer)

    def _restore_shards(self, folder: Path) -> None:
        # A weight that no gradient reaches, such as a bias that a router only counts by, has none.
        moved = {
            name.removeprefix(_OPTIMIZER).rpartition(".")[0]
            for name in shard_names(folder)
            if name.startswith(_OPTIMIZER)
        }
        self._optimizer.begin(moved)
        with torch.no_grad():
            read_shards(folder, self._shards(), self._ranks)

    def _shards(self) -> dict[str, torch.Tensor]:
        """Masters and optimizer as this process holds them, not copied."""
        weights = self.policy.masters.weights
        return {f"{_WEIGHTS}{name}": weight.detach() for name, weight in weights.items()} | {
            # A file's part of a tensor has at least one dimension.
            f"{_OPTIMIZER}{name}": value.view(1) if value.dim() == 0 else value
            for name, value in self._optimizer.state().items()
        }
