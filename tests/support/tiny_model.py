"""A two-layer random Llama with SmolLM2's tokenizer: loads in a second, talks nonsense."""

from __future__ import annotations

import shutil
from pathlib import Path

from podium.local.models import resolve

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def build_tiny_model(target: Path, *, seed: int = 0, layers: int = 2) -> Path:
    """Writes the model into `target`, the same bytes for the same seed, and returns it.

    About 6.7 M parameters in bfloat16, nearly all of them the tied embedding; head
    size 64, which vLLM's CPU attention takes. Needs the prepared SmolLM2.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    source = resolve("smollm2-135m-instruct")
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target)
    for name in _TOKENIZER_FILES:
        shutil.copy2(source / name, target / name)
    return target
