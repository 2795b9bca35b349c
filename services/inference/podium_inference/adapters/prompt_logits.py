"""Inside vLLM's worker: logits of a whole prompt beside adapters, which vLLM itself cannot give.

With adapters vLLM adds theirs of the output embedding to all logits, by a table that has one row
for each request of the batch. The logits of a prompt have one for each of its tokens: in a batch
of several requests the two do not fit, and the engine dies. They go without that part here, which
is nothing for an adapter that leaves the output embedding alone; `adapts_head` tells of one that
does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

_HEADS = ("lm_head", "embed_tokens")


def leave_prompts_plain(model: torch.nn.Module) -> None:
    """Has every wrapped output embedding of the model add its adapters to sampled tokens alone."""
    from vllm.lora.layers.logits_processor import LogitsProcessorWithLoRA

    for module in model.modules():
        if isinstance(module, LogitsProcessorWithLoRA):
            _wrap(module)


def _wrap(module: Any) -> None:
    adapted = module._get_logits

    def logits(hidden: torch.Tensor, head: Any, *rest: Any, **named: Any) -> Any:
        if len(hidden) == len(module.punica_wrapper.sampler_indices):
            return adapted(hidden, head, *rest, **named)
        plain = getattr(head, "base_layer", head)
        return module.base_layer._get_logits(hidden, plain, *rest, **named)

    module._get_logits = logits


def adapts_head(folder: Path) -> bool:
    """Whether an adapter in PEFT's layout changes what hidden states say of tokens."""
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as weights:
        return any(head in name for name in weights.keys() for head in _HEADS)  # noqa: SIM118
