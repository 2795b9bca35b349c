"""The policy: a causal language model with an adapter, evaluated row by row."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from podium_trainer.adapter import adapter_config, add_adapter, trainable
from podium_trainer.attention import DENSE, SEGMENTS
from podium_trainer.batch import Weighted
from podium_trainer.head import logprobs_and_entropy
from podium_trainer.packing import Row, build_row
from podium_trainer.precision import Masters
from podium_trainer.samples import Sample


@dataclass(frozen=True)
class Evaluation:
    """What a policy says about the trained tokens of a row, float32."""

    logprobs: torch.Tensor
    """[K] nats, differentiable in the adapter."""
    entropy: torch.Tensor
    """[K] nats, of the distribution that each token was drawn from."""


class Policy:
    """One base model, frozen, and one adapter that trains.

    Without dropout: a row's nodes are shared by samples, and must mean the same to each.
    """

    def __init__(
        self,
        folder: Path,
        base_model: str,
        lora: spec_pb2.LoraSpec,
        *,
        seed: int,
        dtype: torch.dtype,
        attention: str = SEGMENTS,
    ) -> None:
        """Loads the model of `folder` and puts a fresh adapter on it.

        Raises:
            InvalidArgumentError: the model's kind cannot be packed, or a target module
                is unknown.
        """
        self._causal = _load(folder, dtype, attention)
        self._causal.requires_grad_(False)
        self._peft = add_adapter(self._causal, lora, seed)
        self._peft.eval()
        self._attention = attention
        self.masters = Masters(trainable(self._peft), dtype)
        self.adapter_config = adapter_config(self._peft, base_model)
        head = self._causal.get_output_embeddings()
        self._head = head.weight.detach().float()
        self._check_family(dtype)

    @property
    def vocabulary(self) -> int:
        """Token ids are below it."""
        return int(self._causal.get_input_embeddings().weight.shape[0])

    @property
    def trainable_parameters(self) -> int:
        """How many numbers train."""
        return sum(weight.numel() for weight in self.masters.weights.values())

    def evaluate(self, row: Row) -> Evaluation:
        """Log-probs and entropies of the row's trained tokens under the policy."""
        hidden = self._hidden(row)[torch.from_numpy(row.slot_nodes)]
        slots = torch.from_numpy(row.slots)
        logprobs, entropy = logprobs_and_entropy(
            hidden,
            self._head,
            torch.from_numpy(row.slot_temperatures),
            slots,
            torch.from_numpy(row.targets),
        )
        return Evaluation(logprobs, entropy[slots])

    @torch.no_grad()
    def reference_logprobs(self, row: Row) -> torch.Tensor:
        """[K] log-probs under the base model: the same weights, adapter off."""
        with self._peft.disable_adapter():
            return self.evaluate(row).logprobs

    def _hidden(self, row: Row) -> torch.Tensor:
        """[S, H] final hidden states, normalised."""
        layout = (
            {"segments": row.segments()}
            if self._attention == SEGMENTS
            else {"attention_mask": torch.from_numpy(row.mask())[None, None]}
        )
        output = self._causal.base_model(
            input_ids=torch.from_numpy(row.tokens)[None],
            position_ids=torch.from_numpy(row.positions)[None],
            use_cache=False,
            **layout,
        )
        return output.last_hidden_state[0]

    @torch.no_grad()
    def _check_family(self, dtype: torch.dtype) -> None:
        """Compares a small tree with the model's own plain forward pass.

        It finds models whose attention ignores the tree, whose positions are their
        own, or whose logits are more than hidden states times the output embedding.

        Raises:
            InvalidArgumentError: the two differ, or the model cannot run a tree.
        """
        window = getattr(self._causal.config, "sliding_window", None)
        if window:
            raise _unsupported(self._causal, f"its attention slides over {window} tokens")
        ids = np.arange(1, 8) % self.vocabulary
        samples = [ids, np.concatenate([ids[:3], ids[4:]]), ids[:5]]
        row = build_row([_probe(tokens, number) for number, tokens in enumerate(samples)])
        try:
            packed = self.evaluate(row).logprobs.numpy()
        except (TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise _unsupported(self._causal, "it cannot run a packed row") from error
        with self._plain_attention():
            differences = []
            for number, tokens in enumerate(samples):
                logits = self._causal(input_ids=torch.from_numpy(tokens)[None]).logits[0].float()
                plain = torch.log_softmax(logits[:-1], dim=-1).numpy()
                expected = plain[np.arange(len(tokens) - 1), tokens[1:]]
                got = packed[row.trajectories == number]
                differences.append(np.abs(got - expected))
        # In bfloat16 tokens as unlikely as these are off by half a nat; a wrong mask, by many.
        off = float(np.concatenate(differences).mean())
        if not off <= (1e-3 if dtype == torch.float32 else 0.5):
            raise _unsupported(self._causal, f"packed log-probs are off by {off:.3g} nats")

    def _plain_attention(self) -> AbstractContextManager[None]:
        return nullcontext() if self._attention == DENSE else _Attention(self._causal, DENSE)


class _Attention(AbstractContextManager[None]):
    """Another attention implementation for a while."""

    def __init__(self, model: Any, name: str) -> None:
        self._model, self._name = model, name
        self._before = model.config._attn_implementation

    def __enter__(self) -> None:
        self._model.set_attn_implementation(self._name)

    def __exit__(self, *_: object) -> None:
        self._model.set_attn_implementation(self._before)


def _load(folder: Path, dtype: torch.dtype, attention: str) -> Any:
    disable_progress_bar()
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention, local_files_only=True
        )
    except (ValueError, ImportError, KeyError) as error:
        raise InvalidArgumentError(
            violations=[Violation("base_model", f"Transformers cannot load it: {error}")],
            reason="UNSUPPORTED_MODEL",
        ) from error


def _unsupported(model: Any, why: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        violations=[
            Violation("base_model", f"models of kind {model.config.model_type} cannot train: {why}")
        ],
        reason="UNSUPPORTED_MODEL",
    )


def _probe(tokens: np.ndarray, number: int) -> Weighted:
    count = len(tokens) - 1
    sample = Sample(
        context=tokens[:-1],
        positions=np.arange(count),
        targets=tokens[1:],
        logprobs=np.zeros(count, np.float32),
        temperatures=np.ones(count, np.float32),
    )
    return Weighted(sample, 0, number, 0.0, 0.0)
