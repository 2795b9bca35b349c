"""TRL's GRPOTrainer loss and backward on a CUDA GPU. It has not been run yet."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-not-found,import-untyped,unused-ignore]
from peft import LoraConfig
from podium.models import resolve
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    GRPOConfig,
    GRPOTrainer,
)


def seconds_of_trl(
    folder: Path,
    shape: tuple[int, int, int],
    repeats: int,
    timed: Callable[[Callable[[], Any]], float],
) -> tuple[list[float], float]:
    """Seconds of forward and backward after one to warm up, and peak GiB; no checkpointing.

    Args:
        folder: of the model, which has no tokenizer; SmolLM2's stands in and makes nothing.
        shape: prompt tokens, completion tokens, group size.
        repeats: timed ones.
        timed: measures on the GPU.
    """
    prompt, completion, group = shape
    with tempfile.TemporaryDirectory() as output:
        trainer = _build(folder, output, group, completion)
        generator = torch.Generator().manual_seed(0)
        shared = torch.randint(151936, (1, prompt), generator=generator).expand(group, -1)
        sampled = torch.randint(151936, (group, completion), generator=generator)
        batch = {
            "prompt_ids": shared,
            "prompt_mask": torch.ones_like(shared),
            "completion_ids": sampled,
            "completion_mask": torch.ones_like(sampled),
            "advantages": torch.tensor([1.0, -1.0]).repeat(group // 2),
            "num_items_in_batch": torch.tensor(float(sampled.numel())),
        }
        inputs = {name: tensor.to(trainer.accelerator.device) for name, tensor in batch.items()}
        trainer.model.to(trainer.accelerator.device).train()
        trainer.current_gradient_accumulation_steps = 1

        def step() -> None:
            trainer.compute_loss(trainer.model, inputs).backward()
            trainer.model.zero_grad()

        torch.cuda.reset_peak_memory_stats()
        seconds = [timed(step) for _ in range(repeats + 1)][1:]
        return seconds, torch.cuda.max_memory_allocated() / 2**30


def _build(folder: Path, output: str, group: int, completion: int) -> Any:
    arguments = GRPOConfig(
        output_dir=output,
        bf16=True,
        per_device_train_batch_size=group,
        num_generations=group,
        max_completion_length=completion,
        gradient_checkpointing=False,
        beta=0.0,
        loss_type="dapo",
        use_vllm=False,
        report_to="none",
        disable_tqdm=True,
    )
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.bfloat16),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["-"] * group}),
        processing_class=AutoTokenizer.from_pretrained(str(resolve("smollm2-135m-instruct"))),
        peft_config=LoraConfig(
            r=8,
            lora_alpha=16,
            target_modules="all-linear",
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        ),
    )
