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
FlexAttention as a block mask, for CUDA, windows included. With the others a layer whose
attention slides over fewer tokens than the row is deep takes the dense form.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface

from podium_trainer.learner.layout import Layout, Segments

logger = logging.getLogger(__name__)

_KERNELS = 64
"""Kinds of calls that FlexAttention is compiled for; torch would stop at 8 and go on uncompiled,
with all scores of a row in memory. A model takes two for each of short rows, rows that end with a
block, and others; twice that with windows; and a trainer opens one job after another."""

uncompiled: set[tuple[int, int, torch.dtype]] = set()
"""Sizes of keys and values, and their type, that FlexAttention refused here."""

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
    return SEGMENTS if device.type == "cpu" else FLEX


def attend(
    name: str,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    scale: float,
    window: int | None = None,
) -> torch.Tensor:
    """[1, heads, S, size] queries → [1, heads, S, size], by the kernel of that name.

    Args:
        name: of the kernel.
        query: [1, heads, S, size].
        key: [1, heads, S, size], or fewer heads, each of several queries' heads in order.
        value: as `key`, of whatever size.
        layout: the row's.
        scale: of the scores.
        window: a node sees only those fewer than so many positions above it; None for all above.
    """
    if name == FLEX:
        output = _by_blocks(query, key, value, layout, scale, window)
        if output is not None:
            return output
    repeats = query.shape[1] // key.shape[1]
    # Grouped queries share their keys, and these kernels pair heads one to one.
    if repeats > 1:
        key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    if name == SEGMENTS and window is None:
        return _by_segments(query, key, value, layout, scale)
    mask = layout.mask if window is None else layout.windowed_mask(window)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def _by_segments(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: Layout, scale: float
) -> torch.Tensor:
    # The kernel takes values of the keys' size only; multi-head latent attention has others.
    size = value.shape[-1]
    value = pad(value, (0, query.shape[-1] - size))
    return segment_attention(query, key, value, layout.segments, scale)[..., :size]


def _by_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: Layout,
    scale: float,
    window: int | None,
) -> torch.Tensor | None:
    """None where FlexAttention cannot be compiled: a kind of head, a machine without a compiler."""
    shape = (query.shape[-1], value.shape[-1], query.dtype)
    if shape in uncompiled:
        return None
    flex, refusal = _flex()
    try:
        output: torch.Tensor = flex(
            query,
            key,
            value,
            block_mask=layout.blocks(window),
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    except refusal:
        uncompiled.add(shape)
        what = "FlexAttention cannot be compiled for heads of %d and %d in %s; using a dense mask"
        logger.warning(what, *shape, exc_info=True)
        return None
    return output


@cache
def _flex() -> tuple[Any, tuple[type[Exception], ...]]:
    """FlexAttention compiled, and what it raises where it cannot be."""
    # They take seconds to load, which a CPU need not spend.
    import torch._dynamo as dynamo
    from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
    from torch.nn.attention.flex_attention import flex_attention

    dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, _KERNELS)
    # Whole or not at all: past the limit, too, it raises and does not go on uncompiled.
    compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True)
    return compiled, (TorchDynamoException, FailOnRecompileLimitHit)


def _register(name: str) -> None:
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
        layout.attended.add(id(module))
        scale = scaling if scaling is not None else query.shape[-1] ** -0.5
        # A window that no path outgrows cuts nothing.
        cuts = sliding_window is not None and layout.depth > sliding_window
        window = sliding_window if cuts else None
        output = attend(name, query, key, value, layout, scale, window)
        return output.transpose(1, 2).contiguous(), None

    AttentionInterface.register(name, registered)


for _name in (SEGMENTS, DENSE, FLEX):
    _register(_name)
