"""The policy: a causal language model of which an adapter trains, or everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from podium.core.errors import InvalidArgumentError
from podium.types.v1 import spec_pb2

from podium_trainer.domain.packing import Row
from podium_trainer.learner.adapter import (
    adapter_config,
    adapter_off,
    adapter_parameters,
    add_adapter,
    check_served,
    experts_of,
)
from podium_trainer.learner.base import Base, load_network
from podium_trainer.learner.checkpoint import check_published
from podium_trainer.learner.experts import Experts, frozen_experts
from podium_trainer.learner.families import check_family
from podium_trainer.learner.frozen_layers import join_adapters
from podium_trainer.learner.network import (
    Network,
    asking,
    checkpoint_gradients,
    freeze_other_parts,
)
from podium_trainer.learner.parallel import Ranks, let_go, shard
from podium_trainer.learner.precision import Masters
from podium_trainer.learner.products import Products


@dataclass(frozen=True)
class Evaluation:
    """What a policy says about the trained tokens of a row, float32."""

    logprobs: torch.Tensor
    """[K] nats, differentiable in what trains."""
    entropy: torch.Tensor
    """[K] nats, of the distribution that each token was drawn from."""


class Policy:
    """One base model and what of it trains.

    Without dropout: a row's nodes are shared by samples, and must mean the same to each.
    """

    def __init__(
        self,
        folder: Path,
        base_model: str,
        training: spec_pb2.TrainingSpec,
        *,
        seed: int,
        dtype: torch.dtype,
        products: Products = Products.TORCH,
        attention: str = "",
        ranks: Ranks | None = None,
        base: Base | None = None,
    ) -> None:
        """Loads the model of `folder`; with an adapter, puts a fresh one on it.

        Args:
            folder: in Transformers' layout.
            base_model: its name, for what is published.
            training: with its defaults filled.
            seed: of the adapter's start.
            dtype: of the forward and backward pass.
            products: how those of frozen float32 weights are computed; `base` has its own.
            attention: one of `podium_trainer.learner.attention`; empty for the device's.
            ranks: the processes that train together; None for this one alone.
            base: the model of `folder`, shared with other policies; an adapter trains.

        Raises:
            InvalidArgumentError: the model's kind cannot be packed, or a target module
                is unknown.
        """
        ranks = ranks or Ranks()
        lora = training.trainable != spec_pb2.TRAINABLE_KIND_FULL
        # What trains is read as the file has it: masters that were rounded to the compute type
        # first would start elsewhere than those of a sharded trainer, which are never rounded.
        stored = dtype if lora else torch.float32
        if base is not None:
            self.network = base.network()
        else:
            self.network = load_network(folder, stored, attention, ranks.device, ranks.mesh)
            if not ranks.sharded:
                check_family(self.network, stored)
        self._peft: PeftModel | None = None
        self.adapter_config: Mapping[str, Any] = {}
        self.experts = Experts()
        """Those that an adapter adapts."""
        self.warnings: list[str] = []
        """What may not be meant, for people."""
        self._reference: Network | None = None
        if lora:
            self.network.requires_grad_(False)
            if base is None:
                self.network.multiply_by(products)
            causal, wanted = self.network.causal, training.lora
            self.experts = experts_of(causal, wanted, folder)
            if not self.experts.layers and (frozen := frozen_experts(causal, folder)):
                self.warnings.append(frozen)
            self._peft = add_adapter(causal, wanted, seed, self.experts)
            check_served(self._peft, self.experts, folder)
            self._peft.eval()
            join_adapters(self._peft)
            self.adapter_config = adapter_config(self._peft, base_model, self.experts)
        else:
            check_published(folder)
            freeze_other_parts(self.network)
        if not lora and training.loss.kl_coefficient:
            self._reference = load_network(folder, dtype, attention, ranks.device, ranks.mesh)
            self._reference.requires_grad_(False)
        if training.gradient_checkpointing:
            checkpoint_gradients(self.network)
        self.vocabulary = self.network.vocabulary
        parameters = self._trainable()
        self.trainable_parameters = sum(parameter.numel() for parameter in parameters.values())
        """How many numbers train."""
        if ranks.sharded:
            if lora:
                for parameter in parameters.values():
                    parameter.data = parameter.data.float()
            shard(self.network, ranks, dtype)
            if self._reference is not None:
                shard(self._reference, ranks, dtype, trains=False)
            self._check_sharded(ranks, dtype)
            parameters = self._trainable()
        self.masters = Masters(parameters, torch.float32 if ranks.sharded else dtype)

    def evaluate(self, row: Row) -> Evaluation:
        """Log-probs and entropies of the row's trained tokens under the policy."""
        return Evaluation(*self.network(row))

    @torch.no_grad()
    def reference_logprobs(self, row: Row) -> torch.Tensor:
        """[K] log-probs under the base model.

        With an adapter it is the same weights, adapter off; otherwise a frozen copy.
        """
        with self._adapter_off():
            logprobs: torch.Tensor = (self._reference or self.network)(row)[0]
            return logprobs

    @contextmanager
    def interrupted(self, ask: Callable[[], None]) -> Iterator[None]:
        """Calls `ask` before each layer of every pass in the block; see `network.asking`."""
        with ExitStack() as asked:
            for network in (self.network, self._reference):
                if network is not None:
                    asked.enter_context(asking(network, ask))
            yield

    def _check_sharded(self, ranks: Ranks, dtype: torch.dtype) -> None:
        """As `check_family`, by all processes: none has the weights to do it alone.

        A fresh adapter changes nothing, and FSDP must not meet it disabled first.
        """
        try:
            check_family(self.network, dtype)
        except InvalidArgumentError:
            # A lost process looks like a model that cannot run: then this fails too, for good.
            ranks.greatest(1)
            raise
        let_go(self.network)

    def _adapter_off(self) -> AbstractContextManager[Any]:
        return adapter_off(self._peft) if self._peft is not None else nullcontext()

    def _trainable(self) -> dict[str, torch.nn.Parameter]:
        if self._peft is not None:
            return adapter_parameters(self._peft)
        named = self.network.causal.named_parameters()
        return {name: parameter for name, parameter in named if parameter.requires_grad}
