"""Log-prob and entropy from hidden states, in one pass, only where a token trains.

Logits of a chunk of positions exist at a time: memory is chunk x vocabulary,
whatever the row. The head does not train, so the gradient of a log-prob with
respect to its hidden state, (W[target] - E_p[W]) / T, needs only E_p[W] from the
forward pass: nothing of the vocabulary's size is kept or computed again.
"""

from __future__ import annotations

from typing import Any

import torch

CHUNK = 256
"""Positions whose logits exist at once."""


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        temperatures: torch.Tensor,
        slots: torch.Tensor,
        targets: torch.Tensor,
        chunk: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count = len(hidden)
        inverse = 1 / temperatures
        logprobs = torch.empty(len(slots), dtype=torch.float32, device=hidden.device)
        entropy = torch.empty(count, dtype=torch.float32, device=hidden.device)
        needed = ctx.needs_input_grad[0]
        expected = torch.empty(hidden.shape, dtype=torch.float32, device=hidden.device)
        starts = list(range(0, count, chunk))
        bounds = torch.searchsorted(slots, torch.tensor([*starts, count], device=slots.device))
        for number, start in enumerate(starts):
            end = min(start + chunk, count)
            logits = hidden[start:end].float() @ weight.T
            logits *= inverse[start:end, None]
            lse = torch.logsumexp(logits, dim=-1)
            own = slice(int(bounds[number]), int(bounds[number + 1]))
            local = slots[own] - start
            logprobs[own] = logits[local, targets[own]] - lse[local]
            probabilities = torch.exp(logits - lse[:, None])
            entropy[start:end] = lse - (probabilities * logits).sum(-1)
            if needed:
                expected[start:end] = probabilities @ weight
        ctx.mark_non_differentiable(entropy)
        if needed:
            ctx.save_for_backward(expected, weight, inverse, slots, targets)
            ctx.dtype = hidden.dtype
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        expected, weight, inverse, slots, targets = ctx.saved_tensors
        gradient = gradients[0]
        total = torch.zeros(len(expected), dtype=torch.float32, device=expected.device)
        total.index_add_(0, slots, gradient)
        result = -total[:, None] * expected
        result.index_add_(0, slots, gradient[:, None] * weight[targets])
        result *= inverse[:, None]
        return result.to(ctx.dtype), None, None, None, None, None


def logprobs_and_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    temperatures: torch.Tensor,
    slots: torch.Tensor,
    targets: torch.Tensor,
    *,
    chunk: int = CHUNK,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of K targets, and entropies of U distributions, in nats and float32.

    Args:
        hidden: [U, H] final hidden states, of the compute type.
        weight: [V, H] the output embedding in float32, which gets no gradient.
        temperatures: [U] that divide the logits.
        slots: [K] ascending, which of U predicts each target.
        targets: [K] token ids.
        chunk: positions whose logits exist at once; changes no result.

    Returns:
        [K] log-probs, differentiable in `hidden`, and [U] entropies, which are not.
    """
    return _Head.apply(hidden, weight, temperatures, slots, targets, chunk)
