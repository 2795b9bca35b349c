"""The module that computes: hidden states of a packed row, then the head where tokens train."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from podium_trainer.domain.packing import Row
from podium_trainer.learner.attention import PLAIN
from podium_trainer.learner.frozen_head import frozen_logprobs_and_entropy
from podium_trainer.learner.frozen_layers import freeze, rounded
from podium_trainer.learner.head import logprobs_and_entropy
from podium_trainer.learner.layout import Layout
from podium_trainer.learner.products import Products

logger = logging.getLogger(__name__)

TEXT = "language_model"
"""How Transformers calls the part of a model that is for text, where it has others."""


class Network(torch.nn.Module):
    """A causal language model as Transformers loads it, evaluated row by row.

    One module from tokens to log-probs, so that sharding it gathers the embedding once
    for both its ends.
    """

    def __init__(self, causal: Any) -> None:
        super().__init__()
        self.causal = causal
        self._frozen_head: torch.Tensor | None = None
        self._products = Products.TORCH
        self._rounded_head: torch.Tensor | None = None
        text = causal.config.get_text_config()
        self._logit_scale = logit_scale(text)
        self._logit_bound = float(getattr(text, "final_logit_softcapping", None) or 0)
        self.attended = 0
        """Layers of the last row whose attention took its trees."""

    @property
    def vocabulary(self) -> int:
        """Token ids are below it."""
        return int(self.causal.get_input_embeddings().weight.shape[0])

    def forward(self, row: Row) -> tuple[torch.Tensor, torch.Tensor]:
        """[K] log-probs, with gradient, and [K] entropies of a row's trained tokens."""
        weight = self.causal.get_output_embeddings().weight
        device = weight.device

        def on(array: Any) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        layout = Layout(row, device)
        hidden = self.causal.base_model(
            input_ids=on(row.tokens)[None],
            position_ids=on(row.positions)[None],
            use_cache=False,
            layout=layout,
        ).last_hidden_state[0]
        self.attended = len(layout.attended)
        slots = on(row.slots)
        states = hidden[on(row.slot_nodes)]
        # To divide the logits by it once more is to divide by the product.
        temperatures = on(row.slot_temperatures) / self._logit_scale
        targets = on(row.targets)
        # The frozen head knows no bound; on a CPU both are float32's.
        if self._products == Products.TORCH or self._logit_bound:
            logprobs, entropy = logprobs_and_entropy(
                states,
                self._head(weight),
                temperatures,
                slots,
                targets,
                bound=self._logit_bound,
            )
        else:
            logprobs, entropy = frozen_logprobs_and_entropy(
                states, weight, self._rounded_head, temperatures, slots, targets
            )
        return logprobs, entropy[slots]

    def multiply_by(self, products: Products) -> None:
        """How the products of its weights are computed, all of which are frozen and float32."""
        if products == Products.TORCH:
            return
        weight = self.causal.get_output_embeddings().weight
        assert not weight.requires_grad
        assert weight.dtype == torch.float32
        self._products = products
        count = freeze(blocks(self), products)
        if products == Products.BFLOAT16:
            self._rounded_head = weight.detach().bfloat16()
        logger.info("products of frozen layers", extra={"products": str(products), "layers": count})

    def kept(self) -> list[torch.Tensor]:
        """What it made of its weights and keeps: as large as they, and of frozen ones alone."""
        made = (self._frozen_head, self._rounded_head, *rounded(self))
        return [tensor for tensor in made if tensor is not None]

    def plain(self, tokens: torch.Tensor) -> torch.Tensor:
        """[n] token ids of one sequence → [n, V] logits, by Transformers' own path."""
        before = self.causal.config._attn_implementation
        self.causal.set_attn_implementation(PLAIN)
        try:
            ids = tokens.to(self.causal.get_input_embeddings().weight.device)
            logits: torch.Tensor = self.causal(input_ids=ids[None]).logits[0]
            return logits.float()
        finally:
            self.causal.set_attn_implementation(before)

    def _head(self, weight: torch.Tensor) -> torch.Tensor:
        """The output embedding as the head takes it: float32 on the CPU."""
        if weight.device.type != "cpu" or weight.dtype == torch.float32:
            return weight
        # A sharded one is gathered for a pass, and not to be kept.
        if weight.requires_grad or isinstance(self, FSDPModule):
            return weight.float()
        if self._frozen_head is None or self._frozen_head.shape != weight.shape:
            self._frozen_head = weight.detach().float()
        return self._frozen_head


def logit_scale(config: Any) -> float:
    """What the model multiplies its logits by: Granite divides them, Cohere multiplies."""
    divisor = getattr(config, "logits_scaling", None) or 1.0
    return float(getattr(config, "logit_scale", None) or 1.0) / float(divisor)


def load(folder: str, dtype: torch.dtype, attention: str) -> Any:
    """Transformers' model of `folder`, without dropout; no code of the folder's runs.

    Raises:
        ValueError: the files lack a weight; or, as ImportError, KeyError and others, what
            Transformers raises.
    """
    disable_progress_bar()
    causal, read = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation=attention,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    check_read(read)
    return causal.eval()


def check_read(read: Mapping[str, Any]) -> None:
    """Whether the files had every weight, of what Transformers says of its reading: it would go on
    with random numbers.

    Raises:
        ValueError: they had not.
    """
    if missing := sorted(read["missing_keys"]):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ValueError(f"its files have no {', '.join(missing[:3])}{more}")


def has_text_part(model: torch.nn.Module) -> bool:
    """Whether the model has other parts, such as one for images, beside the one for text."""
    return any(name.rpartition(".")[2] == TEXT for name, _ in model.named_modules())


def constants(causal: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What the files of a model hold and no gradient moves, such as a bias of a router's."""
    buffers = {
        f"{path}.{name}".removeprefix("."): buffer
        for path, module in causal.named_modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name not in module._non_persistent_buffers_set
    }
    frozen = {n: p.detach() for n, p in causal.named_parameters() if not p.requires_grad}
    return buffers | frozen


def freeze_other_parts(network: Network) -> None:
    """Has only the part for text train: no prompt goes through the others."""
    if not has_text_part(network):
        return
    head = network.causal.get_output_embeddings().weight
    for name, parameter in network.causal.named_parameters():
        if TEXT not in name.split(".") and parameter is not head:
            parameter.requires_grad_(False)


def blocks(module: torch.nn.Module) -> torch.nn.ModuleList:
    """The decoder's layers: the list of modules with most parameters, of the part for text."""
    lists = [
        (name.split("."), found)
        for name, found in module.named_modules()
        if isinstance(found, torch.nn.ModuleList)
    ]
    text = [found for path, found in lists if TEXT in path]
    return max(
        text or [found for _, found in lists],
        key=lambda found: sum(parameter.numel() for parameter in found.parameters()),
        default=torch.nn.ModuleList(),
    )


@contextmanager
def asking(network: Network, ask: Callable[[], None]) -> Iterator[None]:
    """Within the block `ask` is called before every decoder layer's forward and backward pass.

    What it raises ends the pass that runs, and comes out of it.
    """

    def before(*_: Any) -> None:
        ask()

    def after(layer: torch.nn.Module, arguments: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.requires_grad:
            hidden.register_hook(before)

    handles = [
        handle
        for block in blocks(network)
        for handle in (block.register_forward_pre_hook(before), block.register_forward_hook(after))
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def checkpoint_gradients(network: Network) -> None:
    """Has every decoder layer compute its activations again in the backward pass."""
    network.causal.gradient_checkpointing_enable({"use_reentrant": False})
    for block in blocks(network):
        # Transformers asks the layer itself; its children stay in evaluation, without dropout.
        block.training = True
