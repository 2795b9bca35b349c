"""Inside vLLM's worker on a CPU: rows of the base model stay its own beside rows of adapters.

vLLM marks a token without an adapter by the slot -1. Its GPU kernels leave such a token out; its
PyTorch ones, which a CPU runs, take -1 for the last of the slots, and the base model speaks with
whatever adapter lies there. It shows when all slots are taken, and base and adapters meet in a
batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_OPERATIONS = ("bgmv_shrink", "bgmv_expand", "bgmv_expand_slice")
"""All that look a slot up; the ones for prompts call them."""


def leave_base_plain() -> None:
    """Has vLLM's PyTorch operations add nothing to a row without an adapter; once a process."""
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    for name in _OPERATIONS:
        plain = getattr(lora_ops, name)
        if not hasattr(plain, "__wrapped__"):
            for module in (lora_ops, punica_cpu):
                setattr(module, name, adapted_alone(plain))


def adapted_alone(operation: Callable[..., None]) -> Callable[..., None]:
    """The operation, for which rows of the slot -1 are nothing.

    It takes inputs [N, I], weights by slot, an output [N, O] that it writes, and slots [N].
    """

    @functools.wraps(operation)
    def masked(
        inputs: torch.Tensor,
        weights: torch.Tensor,
        output: torch.Tensor,
        slots: torch.Tensor,
        *rest: Any,
        **named: Any,
    ) -> None:
        base = slots < 0
        if bool(base.any()):
            inputs = inputs.masked_fill(base.unsqueeze(1), 0)
        operation(inputs, weights, output, slots, *rest, **named)

    return masked
