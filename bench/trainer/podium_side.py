"""Podium's trainer: a session, in a process of its own that is set as the service's is."""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from podium.core.contract import complete_training
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.adapters.memory import keep_freed_memory
from podium_trainer.domain.batch import build_batch
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.products import Products
from podium_trainer.learner.session import Compute, JobConfig, Session
from podium_trainer.learner.step import accumulate_gradient

from bench.trainer.measure import clear_peak, peak_bytes, tell
from bench.trainer.task import Setup


def specification(setup: Setup) -> spec_pb2.TrainingSpec:
    """What TRL is set to as well: group deviation of n - 1, weights by token, no KL."""
    return complete_training(
        spec_pb2.TrainingSpec(
            steps=setup.steps,
            learning_rate=setup.learning_rate,
            adam_beta1=setup.beta1,
            adam_beta2=setup.beta2,
            max_grad_norm=setup.max_grad_norm,
            lora=spec_pb2.LoraSpec(
                rank=setup.rank, alpha=setup.alpha, target_modules=setup.target_modules
            ),
            loss=spec_pb2.LossSpec(
                epsilon=setup.epsilon,
                epsilon_high=setup.epsilon_high,
                deviation=spec_pb2.DEVIATION_SAMPLE,
            ),
            # Of a job that wants float32 no product is of less.
            dtype=spec_pb2.COMPUTE_DTYPE_BFLOAT16
            if setup.products == Products.BFLOAT16
            else spec_pb2.COMPUTE_DTYPE_FLOAT32,
        )
    )


def serve(connection: Connection, setup: Setup) -> None:
    """Answers `("weights", file)`, `("gradient", groups, file)`, `("train", groups)`,
    `("save", folder)` and `("peak",)`; groups are serialized."""
    keep_freed_memory()
    config = JobConfig("bench", "bench", specification(setup), setup.seed)
    compute = Compute(products=Products(setup.products))
    session = Session(config, Path(setup.model), "", compute)
    tell(connection, None)
    while True:
        order, *arguments = connection.recv()
        tell(connection, _ORDERS[order](session, *arguments))


def _weights(session: Session, file: str) -> None:
    """Takes over adapter weights."""
    with torch.no_grad():
        for name, weight in safetensors.torch.load_file(file).items():
            session.policy.masters.weights[name].copy_(weight)
    session.policy.masters.publish()


def _gradient(session: Session, groups: list[bytes], file: str) -> float:
    """Writes the gradient of `groups`, moves nothing, returns the loss."""
    policy, training = session.policy, session.config.training
    batch = build_batch(_groups(groups), training, policy.vocabulary)
    metrics = accumulate_gradient(
        policy,
        batch,
        training,
        row_tokens=Compute().row_tokens,
        cancelled=lambda: False,
        phases=Phases(),
    )
    gradients = {
        name: weight.grad.clone()
        for name, weight in policy.masters.weights.items()
        if weight.grad is not None
    }
    policy.masters.discard_gradients()
    safetensors.torch.save_file(gradients, file)
    clear_peak()
    return metrics["loss"]


def _train(session: Session, groups: list[bytes]) -> dict[str, float]:
    """One step; returns its metrics."""
    return session.train(_groups(groups), lambda: False).metrics


def _save(session: Session, folder: str) -> None:
    """What the sampler needs of a version: the adapter in PEFT's layout.

    The optimizer's state is not on the way from a step to the next sample.
    """
    checkpoint = session.checkpoint()
    file = Path(folder)
    file.mkdir(parents=True, exist_ok=True)
    (file / "adapter_config.json").write_text(json.dumps(dict(checkpoint.adapter_config)))
    safetensors.torch.save_file(dict(checkpoint.weights), file / "adapter_model.safetensors")


def _groups(groups: list[bytes]) -> list[trajectory_pb2.Group]:
    return [trajectory_pb2.Group.FromString(data) for data in groups]


_ORDERS: dict[str, Any] = {
    "weights": _weights,
    "gradient": _gradient,
    "train": _train,
    "save": _save,
    "peak": lambda session: peak_bytes() / 2**20,
}
