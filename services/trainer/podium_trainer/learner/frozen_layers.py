"""Linear layers whose weights do not train, and adapters on them, multiplied by oneDNN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from peft.tuners.lora import Linear as Adapted
from torch import Tensor

from podium_trainer.learner.products import Products, multiply


class FrozenLinear(torch.nn.Linear):
    """A linear layer whose weights do not train, multiplied by oneDNN.

    Weights stay what they were; `rounded` is their copy in bfloat16, or None.
    """

    rounded: Tensor | None

    def product(self, values: Tensor, *, transposed: bool = False) -> Tensor:
        """[M, K] → [M, N] values times the weight, [N, K] (transposed: the other way round)."""
        weight = self.weight if self.rounded is None else self.rounded
        result = multiply(values.to(weight.dtype), weight.t() if transposed else weight)
        return result.float()

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = _Product.apply(input, self)  # type: ignore[no-untyped-call]
        return result if self.bias is None else result + self.bias


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, layer: FrozenLinear) -> Tensor:
        ctx.layer = layer
        result = layer.product(values.reshape(-1, values.shape[-1]))
        return result.view(*values.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0]
        flat = gradient.reshape(-1, gradient.shape[-1])
        result = ctx.layer.product(flat, transposed=True)
        return result.view(*gradient.shape[:-1], -1), None


class _AdaptedProduct(torch.autograd.Function):
    """x W + s x A B in one piece: what is added is added in place, forward and backward."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, down: Tensor, up: Tensor, scale: float, layer: FrozenLinear
    ) -> Tensor:
        flat = values.reshape(-1, values.shape[-1])
        low = multiply(flat, down)
        result = layer.product(flat)
        result.addmm_(low, up.t(), alpha=scale)
        ctx.save_for_backward(flat, down, up, low)
        ctx.layer, ctx.scale = layer, scale
        return result.view(*values.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, down, up, low = ctx.saved_tensors
        shape = gradients[0].shape
        flat = gradients[0].reshape(-1, shape[-1])
        by_low = multiply(flat, up.t()) * ctx.scale
        result = None
        if ctx.needs_input_grad[0]:
            result = ctx.layer.product(flat, transposed=True)
            result.addmm_(by_low, down)
            result = result.view(*shape[:-1], -1)
        by_down = multiply(by_low.t(), values.t())
        by_up = multiply(flat.t(), low.t()) * ctx.scale
        return result, by_down, by_up, None, None


class AdaptedLinear(Adapted):  # type: ignore[misc,unused-ignore]
    """PEFT's linear layer with an adapter, over a `FrozenLinear`."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """As PEFT's; it computes an adapter that is off, or anything but plain LoRA, itself."""
        if self.disable_adapters or self.merged or args or kwargs:
            result: Tensor = super().forward(x, *args, **kwargs)
            return result
        (name,) = self.active_adapters
        layer = self.base_layer
        result = _AdaptedProduct.apply(  # type: ignore[no-untyped-call]
            x,
            self.lora_A[name].weight,
            self.lora_B[name].weight,
            self.scaling[name],
            layer,
        )
        return result if layer.bias is None else result + layer.bias


def freeze(module: torch.nn.Module, products: Products) -> int:
    """Has the frozen linear layers of `module` computed as `products` says; returns how many.

    What is no linear layer, such as the experts of a mixture, stays as it is.
    """
    found: list[Any] = [
        layer
        for layer in module.modules()
        if type(layer) is torch.nn.Linear and not layer.weight.requires_grad
    ]
    for layer in found:
        layer.__class__ = FrozenLinear
        layer.rounded = layer.weight.detach().bfloat16() if products == Products.BFLOAT16 else None
    return len(found)


def join_adapters(module: torch.nn.Module) -> None:
    """Has every adapter on a frozen layer of `freeze` computed in one piece with it."""
    for layer in module.modules():
        if type(layer) is Adapted and isinstance(layer.base_layer, FrozenLinear) and _plain(layer):
            layer.__class__ = AdaptedLinear


def rounded(module: torch.nn.Module) -> Iterator[Tensor]:
    """The copies in bfloat16 that the frozen layers of `module` keep."""
    for layer in module.modules():
        if isinstance(layer, FrozenLinear) and layer.rounded is not None:
            yield layer.rounded


def _plain(layer: Any) -> bool:
    """Whether it adds s x A B and nothing else."""
    return not (layer.lora_variant or any(layer.lora_bias.values())) and all(
        isinstance(dropout, torch.nn.Identity) for dropout in layer.lora_dropout.values()
    )
