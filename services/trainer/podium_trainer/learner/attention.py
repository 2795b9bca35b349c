"""Attention over a prefix tree, as Transformers' attention functions.

`podium_segments` computes only the (query, key) pairs that the tree has. Nodes lie
in depth-first order, so the queries that see a fork-free run of keys are one
contiguous slice, and within it attention is causal: each run is one call of
torch's flash kernel for the CPU, without mask or gather. The partial results of a
query's ancestors are merged by their log-sum-exp (FlashAttention-2, arXiv
2307.08691, section 2.3); backward hands the merged output and log-sum-exp to the
same kernel, which makes each run's share of the gradient exact. The work is that
of separate sequences without their repeated prefixes, however many trees a row has.

`podium_dense` is the plain form, one masked product; `podium_flex` hands the tree to
FlexAttention as a block mask, for CUDA. A layer whose attention slides over fewer
tokens than the row is deep takes the dense form with its window.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from podium_trainer.learner.layout import Layout, Segments

SEGMENTS = "podium_segments"
DENSE = "podium_dense"
FLEX = "podium_flex"
PLAIN = "sdpa"
"""Transformers' own, for sequences that share nothing."""

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
        # In float32 whatever the model's type: every ancestor's part is added to what is there,
        # and a deep path would round as often as it has forks.
        output = torch.zeros(query.shape, dtype=torch.float32)
        # Of having seen nothing: the first part then has all the weight.
        lse = torch.full(query.shape[:-1], float("-inf"))
        for start, end, subtree in segments:
            part, part_lse = _forward(
                query[:, :, start:subtree],
                key[:, :, start:end],
                value[:, :, start:end],
                # Counted from the first key: the run's own queries see it up to themselves, and
                # those after its end see all of it.
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
            # `output` and `lse` are of all that a query sees and not of this run, which is what
            # makes the softmax in here the whole one's.
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
    result: torch.Tensor = _SegmentAttention.apply(  # type: ignore[no-untyped-call]
        query, key, value, segments, scale
    )
    return result


def chosen(device: torch.device) -> str:
    """The implementation for a device. On a GPU nothing was measured yet (bench/gpu)."""
    return SEGMENTS if device.type == "cpu" else DENSE


@cache
def _flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


def _by_segments(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scale: float
) -> torch.Tensor:
    # The kernel takes values of the keys' size only; multi-head latent attention has others.
    size = value.shape[-1]
    value = pad(value, (0, query.shape[-1] - size))
    return segment_attention(query, key, value, layout.segments, scale)[..., :size]


def _by_mask(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scale: float
) -> torch.Tensor:
    return scaled_dot_product_attention(query, key, value, attn_mask=layout.mask, scale=scale)


def _by_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scale: float
) -> torch.Tensor:
    output: torch.Tensor = _flex()(query, key, value, block_mask=layout.blocks, scale=scale)
    return output


_KERNELS = {SEGMENTS: _by_segments, DENSE: _by_mask, FLEX: _by_blocks}


def attend(
    name: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    scale: float,
) -> torch.Tensor:
    """[1, heads, S, size] each → [1, heads, S, size], by the kernel of that name."""
    return _KERNELS[name](query, key, value, layout, scale)


def _register(name: str) -> None:
    kernel = _KERNELS[name]

    def registered(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        softcap: float | None = None,
        layout: Layout | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        # A kernel that left one of these out would compute another model without a word.
        if layout is None or attention_mask is not None or dropout or softcap:
            raise ValueError(f"{name} takes a layout, no mask, no dropout and no soft cap")
        repeats = query.shape[1] // key.shape[1]
        # Grouped queries share their keys, and the kernels pair heads one to one.
        if repeats > 1:
            key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        # The kernel knows the tree and no window; one that no path outgrows cuts nothing.
        if sliding_window is not None and layout.depth > sliding_window:
            mask = layout.windowed_mask(sliding_window)
            output = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
        else:
            output = kernel(query, key, value, layout, scale)
        return output.transpose(1, 2).contiguous(), None

    AttentionInterface.register(name, registered)


for _name in _KERNELS:
    _register(_name)
