"""TRL's GRPOTrainer with Transformers generation, one step at a time, in a process of its own."""

from __future__ import annotations

import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import safetensors.torch
import torch
from datasets import Dataset  # type: ignore[import-not-found,import-untyped,unused-ignore]
from peft import LoraConfig
from transformers import AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from bench.trainer.measure import clear_peak, peak_bytes, tell
from bench.trainer.task import PROMPTS, Setup, reward


def serve(connection: Connection, setup: Setup) -> None:
    """Answers with the prompts' tokens; then `("weights", file)`, `("gradient", batch, file)`,
    `("sample",)` and `("logprobs", completions)` until `("train",)`, and from then on `("step",)`,
    `setup.steps` times."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = _build(setup, folder)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_Turns(connection, trainer))
        tell(connection, _prompts(trainer))
        while True:
            order, *arguments = connection.recv()
            if order == "train":
                break
            tell(connection, _ORDERS[order](trainer, *arguments))
        trainer.train()


class _Trainer(GRPOTrainer):
    """Measures generation apart."""

    generation_seconds = 0.0

    def _generate_single_turn(self, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = super()._generate_single_turn(*arguments, **options)
        self.generation_seconds += time.perf_counter() - start
        return result


class _Turns(TrainerCallback):
    """Holds each step until the other side has had its turn."""

    def __init__(self, connection: Connection, trainer: _Trainer) -> None:
        self._connection = connection
        self._trainer = trainer
        self._start = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._connection.recv()
        self._trainer.generation_seconds = 0.0
        self._start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        seconds = time.perf_counter() - self._start
        metrics = self._trainer._metrics["train"]
        tell(
            self._connection,
            {
                "seconds": seconds,
                "generation": self._trainer.generation_seconds,
                "reward": metrics["reward"][-1],
                "shortest": metrics["completions/min_length"][-1],
                "longest": metrics["completions/max_length"][-1],
                "peak_mib": peak_bytes() / 2**20,
            },
        )


def _reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [reward(tokens) for tokens in completion_ids]


def _build(setup: Setup, folder: str) -> _Trainer:
    tokenizer = AutoTokenizer.from_pretrained(setup.model, padding_side="left")
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        for text in PROMPTS
    ]
    arguments = GRPOConfig(
        output_dir=folder,
        model_init_kwargs={"dtype": "float32"},
        use_cpu=True,
        bf16=False,
        seed=setup.seed,
        max_steps=setup.steps,
        per_device_train_batch_size=len(PROMPTS) * setup.group,
        num_generations=setup.group,
        max_completion_length=setup.completion,
        # Every completion has all its tokens, whatever the model says of its end: no token has
        # this id. Transformers would take None for the end of the model's own generation config,
        # and fill what comes after it with padding.
        generation_kwargs={"eos_token_id": len(tokenizer)},
        gradient_checkpointing=setup.checkpointing,
        learning_rate=setup.learning_rate,
        lr_scheduler_type="constant",
        adam_beta1=setup.beta1,
        adam_beta2=setup.beta2,
        weight_decay=0.0,
        max_grad_norm=setup.max_grad_norm,
        beta=0.0,
        epsilon=setup.epsilon,
        epsilon_high=setup.epsilon_high,
        loss_type="dapo",
        scale_rewards="group",
        temperature=1.0,
        use_vllm=False,
        shuffle_dataset=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = _Trainer(
        model=setup.model,
        reward_funcs=_reward,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": texts * setup.steps}),
        processing_class=tokenizer,
        peft_config=LoraConfig(
            r=setup.rank,
            lora_alpha=setup.alpha,
            target_modules=list(setup.target_modules),
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
        ),
    )
    # It would cut a completion after its first end of sequence.
    trainer.eos_token_ids = [len(tokenizer)]
    return trainer


def _parameters(trainer: _Trainer) -> dict[str, torch.nn.Parameter]:
    """The adapter's, by their names in an adapter file."""
    return {
        name.replace(".default.", "."): parameter
        for name, parameter in trainer.model.named_parameters()
        if parameter.requires_grad
    }


def _weights(trainer: _Trainer, file: str) -> None:
    """Takes over adapter weights."""
    parameters = _parameters(trainer)
    with torch.no_grad():
        for name, weight in safetensors.torch.load_file(file).items():
            parameters[name].copy_(weight)


def _sample(trainer: _Trainer) -> list[list[list[int]]]:
    """[P][G] completions of the prompts, as a step samples them."""
    prompts, group = _prompts(trainer), trainer.args.num_generations
    rows = [ids for ids in prompts for _ in range(group)]
    found, _ = trainer._generate_single_turn(rows, None, {}, group)
    return [found[start : start + group] for start in range(0, len(found), group)]


def _logprobs(trainer: _Trainer, completions: list[list[list[int]]]) -> list[list[list[float]]]:
    """Log-probs of each token, in nats, of [P][G] completions."""
    found: list[list[list[float]]] = []
    trainer.model.eval()
    for prompt, group in zip(_prompts(trainer), completions, strict=True):
        tokens = torch.tensor([[*prompt, *ids] for ids in group])
        with torch.no_grad():
            logits = trainer.model(tokens[:, :-1]).logits[:, len(prompt) - 1 :]
        chosen = tokens[:, len(prompt) :, None]
        found.append(logits.log_softmax(-1).gather(-1, chosen).squeeze(-1).tolist())
    return found


def _prompts(trainer: _Trainer) -> list[list[int]]:
    texts = [row["prompt"] for row in trainer.train_dataset][: len(PROMPTS)]
    found: list[list[int]] = trainer.processing_class(text=texts)["input_ids"]
    return found


def _gradient(trainer: _Trainer, batch: dict[str, Any], file: str) -> float:
    """Writes the gradient of one batch, moves nothing, returns the loss.

    `batch` has [N][P] `prompts`, [N][C] `completions` and `logprobs`, [N] `rewards`; the
    advantages are made as GRPOTrainer makes them.
    """
    prompts = [torch.tensor(ids) for ids in batch["prompts"]]
    longest = max(len(ids) for ids in prompts)
    padding = trainer.processing_class.pad_token_id
    completions = torch.tensor(batch["completions"])
    grouped = torch.tensor(batch["rewards"]).view(-1, trainer.args.num_generations)
    centred = grouped - grouped.mean(1, keepdim=True)
    inputs = {
        "prompt_ids": torch.stack(
            [
                torch.nn.functional.pad(ids, (longest - len(ids), 0), value=padding)
                for ids in prompts
            ]
        ),
        "prompt_mask": torch.stack(
            [torch.arange(longest) >= longest - len(ids) for ids in prompts]
        ).long(),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "old_per_token_logps": torch.tensor(batch["logprobs"]),
        "advantages": (centred / (grouped.std(1, keepdim=True) + 1e-4)).view(-1),
        "num_items_in_batch": torch.tensor(float(completions.numel())),
    }
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    loss = 0.0
    # A group at a time, for the activations of all are 12 GB: the loss is a sum over tokens,
    # divided by those of the whole batch.
    for start in range(0, len(completions), trainer.args.num_generations):
        part = slice(start, start + trainer.args.num_generations)
        piece = trainer.compute_loss(
            trainer.model,
            {name: value[part] if value.dim() else value for name, value in inputs.items()},
        )
        piece.backward()
        loss += float(piece.detach())
    parameters = _parameters(trainer)
    safetensors.torch.save_file(
        {
            name: parameter.grad.clone()
            for name, parameter in parameters.items()
            if parameter.grad is not None
        },
        file,
    )
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    clear_peak()
    return loss


_ORDERS: dict[str, Any] = {
    "weights": _weights,
    "gradient": _gradient,
    "sample": _sample,
    "logprobs": _logprobs,
}
