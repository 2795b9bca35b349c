"""Log-prob and entropy from hidden states, in one pass, only where a token trains.

Logits of a chunk of positions exist at a time: memory is chunk x vocabulary,
whatever the row. The gradient of a log-prob with respect to its hidden state,
(W[target] - E_p[W]) / T, needs only E_p[W] from the forward pass: where the head does
not train, nothing of the vocabulary's size is kept or computed again. Where it does,
the backward pass makes each chunk's probabilities once more for the weight's gradient.

Where the product takes bfloat16, a position's most likely token m is kept apart, as in
`podium_trainer.learner.frozen_head`: E_p[W] = W[m] + (p - onehot(m)) W. Rounding p itself would
be off by up to 0.2 % of W[m], which is all that is left of W[m] - E_p[W] once the policy is sure.

Some models bound their logits, z → c tanh(z / c). The gradient then has each token's slope
s = 1 - tanh²(z / c) beside its embedding, (s[target] W[target] - E_p[s W]) / T.

In shapes, U positions (each with one temperature) predict K targets; V is the vocabulary, H the
hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

CHUNK = 256
"""Positions whose logits exist at once."""


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "U H"],
        weight: Float[Tensor, "V H"],
        temperatures: Float[Tensor, "U"],
        slots: Int[Tensor, "K"],
        targets: Int[Tensor, "K"],
        chunk: int,
        bound: float,
    ) -> tuple[Float32[Tensor, "K"], Float32[Tensor, "U"]]:
        count = len(hidden)
        inverse = 1 / temperatures
        logprobs = torch.empty(len(slots), dtype=torch.float32, device=hidden.device)
        entropy = torch.empty(count, dtype=torch.float32, device=hidden.device)
        needed = ctx.needs_input_grad[0]
        # E_p[W], or what it is away from the likeliest token's.
        expected = torch.empty(hidden.shape, dtype=torch.float32, device=hidden.device)
        rounds = weight.dtype != torch.float32
        likeliest = torch.empty(count if rounds else 0, dtype=torch.long, device=hidden.device)
        bends = bound > 0
        of_targets = torch.empty(len(slots) if bends else 0, device=hidden.device)
        of_likeliest = torch.empty(len(likeliest) if bends else 0, device=hidden.device)
        starts = list(range(0, count, chunk))
        ends = torch.tensor([*starts, count], device=slots.device)
        bounds = torch.searchsorted(slots, ends).tolist()
        for number, start in enumerate(starts):
            end = min(start + chunk, count)
            logits, slopes = _bounded(_product(hidden[start:end], weight.T), bound)
            logits *= inverse[start:end, None]
            lse = torch.logsumexp(logits, dim=-1)
            own = slice(bounds[number], bounds[number + 1])
            local = slots[own] - start
            logprobs[own] = logits[local, targets[own]] - lse[local]
            probabilities = (logits - lse[:, None]).exp_()
            # Nothing of their size is made beside the two of them.
            entropy[start:end] = lse - logits.mul_(probabilities).sum(-1)
            if needed and rounds:
                likeliest[start:end] = most = _without_likeliest(probabilities)
                if slopes is not None:
                    of_likeliest[start:end] = slopes.gather(1, most[:, None])[:, 0]
            if slopes is not None:
                of_targets[own] = slopes[local, targets[own]]
                probabilities *= slopes
            if needed:
                expected[start:end] = _product(probabilities, weight)
        ctx.mark_non_differentiable(entropy)
        if needed:
            kept = hidden if ctx.needs_input_grad[1] else expected
            bent = (of_targets, of_likeliest)
            ctx.save_for_backward(expected, likeliest, weight, inverse, slots, targets, kept, *bent)
            ctx.dtype, ctx.chunk, ctx.bound = hidden.dtype, chunk, bound
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        expected, likeliest, weight, inverse, slots, targets, hidden, *bent = ctx.saved_tensors
        of_targets, of_likeliest = bent
        gradient = gradients[0]
        total = torch.zeros(len(expected), dtype=torch.float32, device=expected.device)
        total.index_add_(0, slots, gradient)
        result = -total[:, None] * expected
        pulls = weight[targets].float()
        if len(of_targets):
            pulls *= of_targets[:, None]
        if len(likeliest):
            # Nothing at all where the token is the likeliest: only what is away from it counts.
            away = weight[likeliest[slots]].float()
            pulls -= away * of_likeliest[slots, None] if len(of_likeliest) else away
        result.index_add_(0, slots, gradient[:, None] * pulls)
        result *= inverse[:, None]
        by_weight = None
        if ctx.needs_input_grad[1]:
            by_weight = _weight_gradient(
                hidden,
                weight,
                inverse,
                slots,
                targets,
                gradient * of_targets if len(of_targets) else gradient,
                total,
                ctx.chunk,
                ctx.bound,
            )
        return result.to(ctx.dtype), by_weight, None, None, None, None, None


def _weight_gradient(
    hidden: Float[Tensor, "U H"],
    weight: Float[Tensor, "V H"],
    inverse: Float[Tensor, "U"],
    slots: Int[Tensor, "K"],
    targets: Int[Tensor, "K"],
    gradient: Float[Tensor, "K"],
    total: Float32[Tensor, "U"],
    chunk: int,
    bound: float,
) -> Float[Tensor, "V H"]:
    """Sum over tokens of g / T (onehot(target) - p) h, a chunk of positions at a time.

    With a bound `gradient` has the targets' slopes, and p is multiplied by the others'.
    """
    result = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
    scaled = hidden.float() * inverse[:, None]
    result.index_add_(0, targets, gradient[:, None] * scaled[slots])
    for start in range(0, len(hidden), chunk):
        own = slice(start, start + chunk)
        logits, slopes = _bounded(_product(hidden[own], weight.T), bound)
        probabilities = torch.softmax(logits * inverse[own, None], dim=-1)
        probabilities *= total[own, None]
        if slopes is not None:
            probabilities *= slopes
        result.addmm_(probabilities.T, scaled[own], alpha=-1)
    return result.to(weight.dtype)


def _without_likeliest(probabilities: Float32[Tensor, "A V"]) -> Int[Tensor, "A"]:
    """Takes onehot(m) from each row, in place, and returns m.

    What is left of m is minus the others' sum, exact to its own digits; p - 1 is not.
    """
    most = probabilities.argmax(-1)
    probabilities.scatter_(1, most[:, None], 0)
    probabilities.scatter_(1, most[:, None], -probabilities.sum(-1, keepdim=True))
    return most


def _bounded(
    logits: Float32[Tensor, "A V"], bound: float
) -> tuple[Float32[Tensor, "A V"], Float32[Tensor, "A V"] | None]:
    """The logits within ± `bound`, in place, and by how much each moves with what it was.

    As they are, and None, where `bound` is 0.
    """
    if not bound:
        return logits, None
    logits.div_(bound).tanh_()
    slopes = 1 - logits.square()
    return logits.mul_(bound), slopes


def _product(one: Float[Tensor, "A B"], two: Float[Tensor, "B C"]) -> Float32[Tensor, "A C"]:
    """The matrix product of the type of `two`, added up and returned in float32."""
    if two.dtype == torch.float32:
        return one.float() @ two
    low = one.to(two.dtype)
    if two.is_cuda:
        # The tensor cores of the lower type, whose sums are float32 all the same.
        return torch.mm(low, two, out_dtype=torch.float32)
    # The same numbers: of two bfloat16 ones float32 holds the product exactly.
    return low.float() @ two.float()


def logprobs_and_entropy(
    hidden: Float[Tensor, "U H"],
    weight: Float[Tensor, "V H"],
    temperatures: Float[Tensor, "U"],
    slots: Int[Tensor, "K"],
    targets: Int[Tensor, "K"],
    *,
    chunk: int = CHUNK,
    bound: float = 0.0,
) -> tuple[Float32[Tensor, "K"], Float32[Tensor, "U"]]:
    """Log-probs of K targets, and entropies of U distributions, in nats and float32.

    Args:
        hidden: final hidden states, of the compute type.
        weight: the output embedding, of any type; float32 costs least on a CPU.
        temperatures: what divides the logits.
        slots: ascending, which of U predicts each target.
        targets: token ids.
        chunk: positions whose logits exist at once; changes no result.
        bound: that of logits before they are divided; 0 for none.

    Returns:
        Log-probs, differentiable in `hidden` and `weight`, and entropies, which are not.
    """
    result: tuple[torch.Tensor, torch.Tensor] = _Head.apply(  # type: ignore[no-untyped-call]
        hidden, weight, temperatures, slots, targets, chunk, bound
    )
    return result
