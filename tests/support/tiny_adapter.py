"""A LoRA adapter of a tiny model, and what a model with it answers."""

from __future__ import annotations

from pathlib import Path


def write_adapter(base: Path, folder: Path, *, rank: int = 4) -> None:
    """An adapter whose B is not zero."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(
        r=rank, lora_alpha=8, target_modules=["q_proj", "down_proj"], init_lora_weights=False
    )
    get_peft_model(model, config).save_pretrained(folder)


def logits(base: Path, adapter: Path | None = None) -> object:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        return model.eval()(torch.arange(40, 60)[None]).logits
