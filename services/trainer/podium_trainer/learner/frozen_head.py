"""The head where it does not train and a CPU's products are oneDNN's.

The same numbers as `podium_trainer.learner.head`, differently made: positions are looked at a few
at a time, while their logits are in the cache, and nothing of their size is made beside them.

A position's most likely token m is kept apart: E_p[W] = W[m] + (p - onehot(m)) W. Of a token that
the policy is sure of, log p = -log(1 + the others' sum) and the gradient W[m] - E_p[W] are then
small numbers to all their digits, though the product is of bfloat16: rounding p itself would lose
what is left of them when W[m] is taken away.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from podium_trainer.learner.products import multiply

CHUNK = 256
"""Positions whose logits exist at once."""
_BLOCK = 16
"""Positions that are looked at at once: 3 MB of a vocabulary of 49,152."""


class _FrozenHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float32[Tensor, "U H"],
        weight: Float32[Tensor, "V H"],
        rounded: Float[Tensor, "V H"] | None,
        temperatures: Float32[Tensor, "U"],
        slots: Int[Tensor, "K"],
        targets: Int[Tensor, "K"],
        chunk: int,
    ) -> tuple[Float32[Tensor, "K"], Float32[Tensor, "U"]]:
        count = len(hidden)
        inverse = 1 / temperatures
        logprobs = torch.empty(len(slots))
        entropy = torch.empty(count)
        needed = ctx.needs_input_grad[0]
        away = torch.empty(hidden.shape if needed else (0,))
        likeliest = torch.empty(count, dtype=torch.long)
        starts = list(range(0, count, _BLOCK))
        bounds = torch.searchsorted(slots, torch.tensor([*starts, count])).tolist()
        chunk = max(chunk // _BLOCK, 1) * _BLOCK
        for first in range(0, count, chunk):
            last = min(first + chunk, count)
            logits = multiply(hidden[first:last], weight)
            sums = torch.empty(last - first)
            for start in range(first, last, _BLOCK):
                end, number = min(start + _BLOCK, last), start // _BLOCK
                own = slice(bounds[number], bounds[number + 1])
                block = slice(start - first, end - first)
                scaled = logits[block].mul_(inverse[start:end, None])
                greatest, most = scaled.max(-1)
                likeliest[start:end] = most
                scaled -= greatest[:, None]
                chosen = scaled[slots[own] - start, targets[own]]
                odds = scaled.exp()
                weighed = torch.linalg.vecdot(odds, scaled)
                odds.scatter_(1, most[:, None], 0)
                others = odds.sum(-1)
                sums[block] = 1 + others
                lse = torch.log1p(others)
                logprobs[own] = chosen - lse[slots[own] - start]
                entropy[start:end] = lse - weighed / sums[block]
                if needed:
                    odds.scatter_(1, most[:, None], -others[:, None])
                    scaled.copy_(odds)
            if needed:
                factor = weight if rounded is None else rounded
                product = multiply(logits.to(factor.dtype), factor.t()).float()
                away[first:last] = product.div_(sums[:, None])
        ctx.mark_non_differentiable(entropy)
        if needed:
            ctx.save_for_backward(away, likeliest, weight, inverse, slots, targets)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        away, likeliest, weight, inverse, slots, targets = ctx.saved_tensors
        gradient = gradients[0]
        total = torch.zeros(len(away)).index_add_(0, slots, gradient)
        # Nothing at all where the token is the likeliest: only what is away from it counts.
        pulls = (weight[targets] - weight[likeliest[slots]]) * gradient[:, None]
        result = (-total[:, None] * away).index_add_(0, slots, pulls)
        result *= inverse[:, None]
        return result, None, None, None, None, None, None


def frozen_logprobs_and_entropy(
    hidden: Float32[Tensor, "U H"],
    weight: Float32[Tensor, "V H"],
    rounded: Float[Tensor, "V H"] | None,
    temperatures: Float32[Tensor, "U"],
    slots: Int[Tensor, "K"],
    targets: Int[Tensor, "K"],
    *,
    chunk: int = CHUNK,
) -> tuple[Float32[Tensor, "K"], Float32[Tensor, "U"]]:
    """As `head.logprobs_and_entropy`, differentiable in `hidden` alone.

    Args:
        rounded: `weight` in bfloat16, for the gradient's product; None to take it in float32.
    """
    result: tuple[Tensor, Tensor] = _FrozenHead.apply(  # type: ignore[no-untyped-call]
        hidden, weight, rounded, temperatures, slots, targets, chunk
    )
    return result
