"""TRL's GRPOTrainer: loss and backward of one group. On a GPU it has not been run yet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset  # type: ignore[import-not-found,import-untyped,unused-ignore]
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from bench.gpu.measure import measured


def seconds_of_trl(
    folder: Path,
    shape: tuple[int, int, int],
    vocabulary: int,
    device: torch.device,
    *,
    repeats: int,
) -> dict[str, Any]:
    """What `measured` tells of forward and backward; no checkpointing.

    Args:
        folder: of the model, which has no tokenizer; a made-up one stands in and makes nothing.
        shape: prompt tokens, completion tokens, group size.
        vocabulary: token ids are below it.
        device: where to.
        repeats: timed ones.
    """
    prompt, completion, group = shape
    with tempfile.TemporaryDirectory() as output:
        trainer = _build(folder, output, group, completion, device)
        generator = torch.Generator().manual_seed(0)
        shared = torch.randint(vocabulary, (1, prompt), generator=generator).expand(group, -1)
        sampled = torch.randint(vocabulary, (group, completion), generator=generator)
        batch = {
            "prompt_ids": shared,
            "prompt_mask": torch.ones_like(shared),
            "completion_ids": sampled,
            "completion_mask": torch.ones_like(sampled),
            "advantages": torch.tensor([1.0, -1.0]).repeat(group // 2),
            "num_items_in_batch": torch.tensor(float(sampled.numel())),
        }
        inputs = {name: tensor.to(device) for name, tensor in batch.items()}
        trainer.model.to(device).train()
        trainer.current_gradient_accumulation_steps = 1

        def step() -> None:
            trainer.compute_loss(trainer.model, inputs).backward()
            trainer.model.zero_grad()

        return measured(step, device, repeats)


def _tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({"-": 0, "<eos>": 1}, unk_token="-"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="-", eos_token="<eos>", pad_token="<eos>"
    )


def _build(folder: Path, output: str, group: int, completion: int, device: torch.device) -> Any:
    arguments = GRPOConfig(
        output_dir=output,
        bf16=device.type == "cuda",
        use_cpu=device.type == "cpu",
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
        processing_class=_tokenizer(),
        peft_config=LoraConfig(
            r=8,
            lora_alpha=16,
            target_modules="all-linear",
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        ),
    )
