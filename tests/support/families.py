"""Tiny random models of the architectures that people train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from support.tiny_policy import VOCABULARY

_COMMON: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2.5": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 64, "tie_word_embeddings": True}),
    "llama3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            }
        },
    ),
    "kimi": (
        "deepseek_v3",
        {
            "num_key_value_heads": 2,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "num_hidden_layers": 3,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 512,
            "q_lora_rank": 24,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
        },
    ),
    "mistral": ("mistral", {"sliding_window": 16}),
    "gemma": (
        "gemma3_text",
        {
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            "initializer_range": 0.05,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}
"""By the name people use: Transformers' kind, and what differs from `_COMMON`.

Windows are shorter than the tests' sequences, so that they cut something; heads have 64
numbers, which vLLM's attention for the CPU takes.
"""


SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "granite": (
        "granite",
        {"logits_scaling": 8.0, "embedding_multiplier": 12.0, "residual_multiplier": 0.22},
    ),
    "command": ("cohere2", {"logit_scale": 0.25, "sliding_window": 16}),
    "gemma4": (
        "gemma4_text",
        {
            "head_dim": 64,
            "sliding_window": 16,
            "vocab_size_per_layer_input": VOCABULARY,
            "hidden_size_per_layer_input": 16,
            "final_logit_softcapping": 2.0,
        },
    ),
}
"""As `FAMILIES`: those that divide, multiply or bound their logits."""


def build_family(name: str, folder: Path, **changes: Any) -> Path:
    """Writes a model of the family, float32 and seeded, into `folder`."""
    kind, options = (FAMILIES | SCALED)[name]
    return build_kind(kind, folder, **{**options, **changes})


def build_kind(kind: str, folder: Path, **options: Any) -> Path:
    """As `build_family`, of Transformers' kind."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **{"vocab_size": VOCABULARY, **_COMMON, **options})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
    model.float().save_pretrained(folder)
    return folder


MIXTURES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
"""Mixtures of experts by Transformers' kind, and what tells them apart."""

WITH_DENSE_LAYERS: dict[str, dict[str, Any]] = {
    "glm4_moe": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "n_group": 2,
        "topk_group": 1,
    },
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 24},
}
"""Those whose first layers, or shared experts, are dense under the same names as experts."""


def build_mixture(kind: str, folder: Path) -> Path:
    """Writes a small mixture, float32 and seeded, into `folder`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        kind,
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.2,
        **(MIXTURES | WITH_DENSE_LAYERS)[kind],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    return folder


IMAGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gemma3": (
        {"model_type": "gemma3_text", "query_pre_attn_scalar": 64},
        {"image_size": 28},
        {"mm_tokens_per_image": 4},
    ),
    "gemma4": (
        {"vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16},
        {"head_dim": 16, "position_embedding_size": 16},
        {"audio_config": None},
    ),
}
"""Models with a part for images, whose layers are called as those for text: what differs of the
text's configuration, of the images', and of the whole. The files of the first call layers otherwise
than Transformers does."""


def build_with_images(kind: str, folder: Path) -> Path:
    """Writes a small one, float32 and seeded, into `folder`."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    text, vision, rest = IMAGES[kind]
    config = AutoConfig.for_model(
        kind,
        text_config={
            **_COMMON,
            "vocab_size": VOCABULARY,
            "head_dim": 64,
            "sliding_window": 16,
            **text,
        },
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "patch_size": 14,
            **vision,
        },
        **rest,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForImageTextToText.from_config(config).float().save_pretrained(folder)
    return folder
