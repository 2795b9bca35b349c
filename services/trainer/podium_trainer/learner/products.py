"""How the matrix products of frozen weights are computed on a CPU.

`torch` is what torch takes, which on x86 is MKL. On AMD's processors MKL does not use AVX-512;
oneDNN does, and has BF16 instructions too. `onednn` gives it the float32 products of the frozen
layers and of the head: no number is less than float32, but sums are rounded in another order.
`bfloat16` also rounds both factors of a frozen layer's products to bfloat16, forward and backward,
and of the head's backward product; sums are float32. Weights, adapters, norms, attention, softmax
and gradients stay float32 in all of them.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor


class Products(StrEnum):
    """The setting's values."""

    TORCH = "torch"
    ONEDNN = "onednn"
    BFLOAT16 = "bfloat16"


def refusal(products: Products, bfloat16: str, processes: int) -> str:
    """Why this machine cannot compute so: what came and what is allowed. Empty if it can."""
    if products == Products.TORCH:
        return ""
    if torch.cuda.is_available():
        return f"got {products} on a GPU, whose products are its own; allowed is torch"
    if processes > 1:
        return f"got {products} with {processes} processes; allowed is torch"
    if bfloat16 == "native":
        return (
            f"got {products} with PODIUM_TRAINER_BFLOAT16=native, which computes all in bfloat16; "
            "allowed is torch"
        )
    if not torch.backends.mkldnn.is_available():
        return f"got {products}; this torch was built without oneDNN, and allowed is torch"
    if products == Products.BFLOAT16 and not has_bfloat16():
        return (
            f"got {products}; this CPU has {torch.backends.cpu.get_cpu_capability()} and neither "
            "AVX512-BF16 nor AMX, so that it would emulate them; allowed are torch, onednn"
        )
    return ""


def has_bfloat16() -> bool:
    """Whether this CPU has instructions for products of bfloat16."""
    # In torch.cpu, but not documented there.
    found: bool = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return found


def multiply(one: Tensor, two: Tensor) -> Tensor:
    """[M, K] and [N, K] of one type → [M, N] of that type, by oneDNN; sums are float32."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(one, two, None, "none", [], "")
    return result
