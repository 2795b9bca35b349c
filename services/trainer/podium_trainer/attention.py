"""Attention over a prefix tree, as Transformers' attention functions.

`podium_segments` computes only the (query, key) pairs that the tree has. Nodes lie
in depth-first order, so the queries that see a fork-free run of keys are one
contiguous slice, and within it attention is causal: each run is one call of
torch's flash kernel for the CPU, without mask or gather. The partial results of a
query's ancestors are merged by their log-sum-exp (FlashAttention-2, arXiv
2307.08691, section 2.3); backward hands the merged output and log-sum-exp to the
same kernel, which makes each run's share of the gradient exact. The work is that
of separate sequences without their repeated prefixes, however many trees a row has.

`sdpa` with the dense mask of `Row.mask` is the plain form, for other devices.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface

SEGMENTS = "podium_segments"
DENSE = "sdpa"

Segments = list[tuple[int, int, int]]
"""(start, end, end of the subtree) of every fork-free run of nodes, see `Row.segments`."""

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class _SegmentAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        segments: Segments,
        scale: float,
    ) -> torch.Tensor:
        output = torch.zeros(query.shape, dtype=torch.float32)
        lse = torch.full(query.shape[:-1], float("-inf"))
        for start, end, subtree in segments:
            part, part_lse = _forward(
                query[:, :, start:subtree],
                key[:, :, start:end],
                value[:, :, start:end],
                is_causal=True,
                scale=scale,
            )
            before = lse[:, :, start:subtree]
            after = torch.logaddexp(before, part_lse)
            merged = output[:, :, start:subtree]
            merged.mul_((before - after).exp_().unsqueeze(-1))
            merged.add_(part * (part_lse - after).exp_().unsqueeze(-1))
            lse[:, :, start:subtree] = after
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.segments, ctx.scale = segments, scale
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, output, lse = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        query_gradient = torch.zeros(query.shape, dtype=torch.float32)
        key_gradient = torch.empty_like(key)
        value_gradient = torch.empty_like(value)
        for start, end, subtree in ctx.segments:
            part, key_part, value_part = _backward(
                gradient[:, :, start:subtree],
                query[:, :, start:subtree],
                key[:, :, start:end],
                value[:, :, start:end],
                output[:, :, start:subtree],
                lse[:, :, start:subtree],
                0.0,
                True,
                scale=ctx.scale,
            )
            query_gradient[:, :, start:subtree] += part
            # Every key is in one run only.
            key_gradient[:, :, start:end] = key_part
            value_gradient[:, :, start:end] = value_part
        return query_gradient.to(query.dtype), key_gradient, value_gradient, None, None


def segment_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Segments, scale: float
) -> torch.Tensor:
    """[1, heads, S, size] each → [1, heads, S, size]; CPU only."""
    return _SegmentAttention.apply(query, key, value, segments, scale)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    segments: Segments | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    if segments is None or attention_mask is not None or dropout:
        raise ValueError(f"{SEGMENTS} takes segments, no mask and no dropout")
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    output = segment_attention(query, key, value, segments, scale)
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(SEGMENTS, _attend)
