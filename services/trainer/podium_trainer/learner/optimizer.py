"""AdamW over float32 masters, with warm-up, clipping and a state that is plain tensors."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from podium.core.errors import DataLossError, FailedPreconditionError
from podium.types.v1 import spec_pb2
from torch.distributed.tensor import DTensor

from podium_trainer.learner.parallel import fill

_MOMENTS = ("exp_avg", "exp_avg_sq")


def learning_rate(training: spec_pb2.TrainingSpec, step: int) -> float:
    """The rate of step `step`, from 1: linear from 0 over the warm-up, then by the schedule.

    `linear` and `cosine` would reach 0 at step `steps` + 1, so that the last one still learns.
    """
    if step < training.warmup_steps:
        return training.learning_rate * step / training.warmup_steps
    begin = max(1, training.warmup_steps)
    done = (step - begin) / max(1, training.steps + 1 - begin)
    if training.schedule == spec_pb2.SCHEDULE_LINEAR:
        return training.learning_rate * (1 - done)
    if training.schedule == spec_pb2.SCHEDULE_COSINE:
        return training.learning_rate * (1 + math.cos(math.pi * done)) / 2
    return training.learning_rate


class Optimizer:
    """torch's AdamW with betas and weight decay of the specification, epsilon 1e-8."""

    def __init__(
        self, weights: Mapping[str, torch.Tensor], training: spec_pb2.TrainingSpec
    ) -> None:
        self._weights = dict(weights)
        self._max_norm = training.max_grad_norm
        self._adam = torch.optim.AdamW(
            list(self._weights.values()),
            lr=training.learning_rate,
            betas=(training.adam_beta1, training.adam_beta2),
            weight_decay=training.weight_decay,
            fused=True,
        )

    def clip(self) -> float:
        """Scales the gradient to at most the greatest norm; returns the norm before.

        Raises:
            FailedPreconditionError: the gradient is not finite; nothing has been applied.
        """
        found = torch.nn.utils.clip_grad_norm_(self._weights.values(), self._max_norm)
        norm = float(found.full_tensor() if isinstance(found, DTensor) else found)
        if not math.isfinite(norm):
            raise FailedPreconditionError(
                "the gradient is not finite; the step was not taken", reason="NON_FINITE_GRADIENT"
            )
        return norm

    def step(self, rate: float) -> None:
        """Applies the gradient."""
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()

    def state(self) -> dict[str, torch.Tensor]:
        """The moments by `{weight}.{moment}` and the count of updates by `{weight}.step`.

        Not copied, and as sharded as the weights; empty before the first update.
        """
        return {
            f"{name}.{key}": state[key]
            for name, weight in self._weights.items()
            if (state := self._adam.state.get(weight))
            for key in (*_MOMENTS, "step")
        }

    def move(self, device: torch.device) -> None:
        """Moves the moments to `device`, where the weights must be when they step."""
        for state in self._adam.state.values():
            for key, value in state.items():
                state[key] = value.to(device)

    def reset(self) -> None:
        """Forgets moments and counts: the next update is as a first one."""
        self._adam.state.clear()

    def begin(self, names: Collection[str]) -> None:
        """Moments of zero of the weights of those names, to be filled through `state`."""
        for weight in (weight for name, weight in self._weights.items() if name in names):
            state = {key: torch.zeros_like(weight) for key in _MOMENTS}
            state["step"] = torch.zeros((), device=weight.device)
            self._adam.state[weight] = state

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Takes over a state that `tensors` made; none for one that has not stepped.

        Raises:
            DataLossError: it belongs to other weights.
        """
        expected = {
            f"{name}.{key}": weight.shape if key in _MOMENTS else torch.Size([])
            for name, weight in self._weights.items()
            for key in (*_MOMENTS, "step")
        }
        if tensors and {name: tensor.shape for name, tensor in tensors.items()} != expected:
            raise DataLossError("the optimizer state does not belong to these weights")
        self._adam.state.clear()
        if tensors:
            self.begin(self._weights)
        for name, held in self.state().items():
            fill(held, tensors[name])
