"""Compute type and float32 masters of what trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from podium.types.v1 import spec_pb2

from podium_trainer.learner.products import Products


def compute_dtype(
    wanted: spec_pb2.ComputeDtype.ValueType, bfloat16: str, device: torch.device
) -> torch.dtype:
    """The type of the forward and backward pass.

    On a CPU a bfloat16 job keeps the bfloat16 weights of its base model and computes in
    float32 (docs/decisions/0008); `bfloat16="native"` insists on bfloat16 arithmetic.
    """
    if wanted == spec_pb2.COMPUTE_DTYPE_FLOAT32:
        return torch.float32
    if device.type != "cpu" or bfloat16 == "native":
        return torch.bfloat16
    return torch.float32


@dataclass(frozen=True)
class Arithmetic:
    """What a job computes in."""

    dtype: torch.dtype
    products: Products = Products.TORCH
    """Of frozen weights."""

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return name if self.products == Products.TORCH else f"{name}, products {self.products}"


def arithmetic(
    training: spec_pb2.TrainingSpec, bfloat16: str, products: Products, device: torch.device
) -> Arithmetic:
    """What a job computes in on this trainer.

    A job that wants float32 has it in its products too, and weights that train are multiplied by
    torch in any case.
    """
    dtype = compute_dtype(training.dtype, bfloat16, device)
    if training.trainable == spec_pb2.TRAINABLE_KIND_FULL:
        products = Products.TORCH
    elif products == Products.BFLOAT16 and training.dtype == spec_pb2.COMPUTE_DTYPE_FLOAT32:
        products = Products.ONEDNN
    return Arithmetic(dtype, products)


class Masters:
    """Float32 master weights of trainable parameters that may compute in bfloat16.

    In float32 the parameter is its own master. Otherwise gradients are added up in
    float32 after each micro-batch, the optimizer moves the masters, and `publish`
    rounds them into the parameters.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], dtype: torch.dtype) -> None:
        self._parameters = dict(parameters)
        self.weights: dict[str, torch.Tensor] = {}
        """By parameter name: what the optimizer moves and a checkpoint holds."""
        for name, parameter in self._parameters.items():
            if dtype == torch.float32:
                if parameter.dtype != dtype:
                    parameter.data = parameter.data.float()
                self.weights[name] = parameter
            else:
                self.weights[name] = parameter.data.float().clone().requires_grad_()
                parameter.data = parameter.data.to(dtype)

    def collect(self) -> None:
        """Moves a micro-batch's gradients up."""
        for name, parameter in self._parameters.items():
            master = self.weights[name]
            if master is parameter or parameter.grad is None:
                continue
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Rounds the masters into the parameters."""
        for name, parameter in self._parameters.items():
            if self.weights[name] is not parameter:
                parameter.copy_(self.weights[name])

    def move(self, device: torch.device) -> None:
        """Moves parameters and masters to `device`; there must be no gradients."""
        for name, parameter in self._parameters.items():
            parameter.data = parameter.data.to(device)
            master = self.weights[name]
            if master is not parameter:
                master.data = master.data.to(device)

    def discard_gradients(self) -> None:
        """Forgets the gradients of a step that ended or was given up."""
        for name, parameter in self._parameters.items():
            parameter.grad = None
            self.weights[name].grad = None
