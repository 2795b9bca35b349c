"""A two-layer random Llama with the beginning of SmolLM2's tokenizer: it talks nonsense."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from podium.local.models import resolve

VOCABULARY = 4096
"""Tokens. A step of an engine costs a third of one with all of SmolLM2's 49,152."""
_SPECIAL = 17
_RARE = 0.5
_COPIED = ("tokenizer_config.json", "chat_template.jinja")


def build_tiny_model(target: Path, *, seed: int = 0, layers: int = 2) -> Path:
    """Writes the model into `target`, the same bytes for the same seed, and returns it.

    About 0.9 M parameters in bfloat16, most of them the tied embedding; head size 64,
    which vLLM's CPU attention takes. Special tokens, the end of a turn among them, it samples a
    hundred times less often than others. Needs the prepared SmolLM2.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    source = resolve("smollm2-135m-instruct")
    config = LlamaConfig(
        vocab_size=VOCABULARY,
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
        model = LlamaForCausalLM(config)
    with torch.no_grad():
        # One number that all tokens but the special ones have in common.
        embedding = model.get_input_embeddings().weight
        embedding[:, 0] = _RARE
        embedding[:_SPECIAL, 0] = -_RARE
    model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    target.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(target)
    for name in _COPIED:
        shutil.copy2(source / name, target / name)
    _cut(source / "tokenizer.json", target / "tokenizer.json")
    return target


def _cut(source: Path, target: Path) -> None:
    """A tokenizer of the first tokens alone, and of the merges that make them."""
    whole = json.loads(source.read_text(encoding="utf-8"))
    model = whole["model"]
    model["vocab"] = {token: n for token, n in model["vocab"].items() if n < VOCABULARY}
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) in model["vocab"]]
    target.write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
