"""Tensors of a model's files that no program reads any more. Light: no torch."""

from __future__ import annotations

import re

_MASK = re.compile(r"\.(attn|attention)\.(masked_)?bias\Z")


def is_mask(name: str) -> bool:
    """Whether it is a causal mask, which older Transformers stored: GPT-2's, GPT-NeoX's."""
    return bool(_MASK.search(name))
