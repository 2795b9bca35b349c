"""Tensors of a model's files that no program reads. Light: no torch; Transformers on use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from podium.local.models.configuration import whole_config

_MASK = re.compile(r"\.(attn|attention)\.(masked_)?bias\Z")
_BESIDES = re.compile(r"\.rotary_emb\.inv_freq\Z|(\A|\.)mtp[._]")
"""Buffers of older Transformers, and heads that say several tokens at once."""
_HEAD = re.compile(r"\A(language_model\.)?lm_head\.weight\Z")
_LAYER = re.compile(r"\A(language_model\.)?model\.(language_model\.)?layers\.(\d+)\.(.+)")
_SHARED = re.compile(r"self_attn\.[kv]_(proj|norm)\.")


def is_mask(name: str) -> bool:
    """Whether it is a causal mask, which older Transformers stored: GPT-2's, GPT-NeoX's."""
    return bool(_MASK.search(name))


def unread(folder: Path, names: Iterable[str]) -> set[str]:
    """Which of `names`, tensors in the files of the model in `folder`, say nothing of what it does.

    Beside masks and buffers, a second name of a tied embedding, layers beyond those that
    config.json counts (DeepSeek's and GLM's, which say several tokens at once), and keys and
    values of layers that take them from an earlier one (Gemma's). A version of whole weights
    need not hold them: the trainer cannot, and a pool does not ask for them.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: see `whole_config`.
    """
    asked = set(names)
    found = {name for name in asked if is_mask(name) or _BESIDES.search(name)}
    rest = asked - found
    if not rest:
        return found
    config = whole_config(folder)
    layers = config.get("num_hidden_layers")
    own = (layers or 0) - (config.get("num_kv_shared_layers") or 0)
    for name in rest:
        if _HEAD.search(name):
            if config.get("tie_word_embeddings"):
                found.add(name)
        elif layers and (layer := _LAYER.search(name)):
            index = int(layer[3])
            if index >= layers or (0 < own <= index and _SHARED.match(layer[4])):
                found.add(name)
    return found
