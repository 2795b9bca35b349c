"""A base model that is in memory once, whichever policies are on it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from podium.local.models import causal_kinds, check_whole, unsupported, untrainable
from safetensors import SafetensorError
from torch.distributed.device_mesh import DeviceMesh

from podium_trainer.learner.attention import chosen
from podium_trainer.learner.families import check_family
from podium_trainer.learner.loading import load_parts
from podium_trainer.learner.network import Network, load
from podium_trainer.learner.precision import Arithmetic

_REFUSALS = (
    ValueError,
    ImportError,
    KeyError,
    OSError,
    RuntimeError,
    AttributeError,
    TypeError,
    SafetensorError,
)
"""What Transformers raises of a checkpoint that it does not take."""


class Base:
    """Frozen weights, and as many networks over them as there are policies.

    A policy's network is a tree of modules of its own whose weights are these: what PEFT, the
    checkpointing of gradients or a hook does to one is in no other, and every policy computes
    as it does alone.
    """

    def __init__(
        self,
        folder: Path,
        digest: str,
        arithmetic: Arithmetic,
        attention: str,
        device: torch.device,
    ) -> None:
        """Loads the model of `folder`.

        Raises:
            InvalidArgumentError: the model's kind cannot be packed.
        """
        self.digest = digest
        self.arithmetic = arithmetic
        self._network = load_network(folder, arithmetic.dtype, attention, device)
        self._network.requires_grad_(False)
        check_family(self._network, arithmetic.dtype)
        self._network.multiply_by(arithmetic.products)

    def network(self) -> Network:
        """A network over the weights, without an adapter."""
        shared = [*self._network.parameters(), *self._network.kept()]
        # A copy of modules and small buffers: what is in the memo already is not copied.
        return copy.deepcopy(self._network, {id(tensor): tensor for tensor in shared})


def load_network(
    folder: Path,
    dtype: torch.dtype,
    attention: str,
    device: torch.device,
    mesh: DeviceMesh | None = None,
) -> Network:
    """The network of the model in `folder`; `attention` empty for the device's.

    With a mesh each process reads its part, and `parallel.shard` must follow.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: no job can train on it, or Transformers cannot
            load it.
        NotFoundError: weights are missing or damaged.
    """
    check_whole(folder)
    if why := untrainable(folder, causal_kinds()):
        raise unsupported(folder, why)
    attention = attention or chosen(device)
    try:
        if mesh is None:
            causal = load(str(folder), dtype, attention)
        else:
            causal = load_parts(str(folder), dtype, attention, mesh)
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        # RuntimeErrors too, which are of the GPU and not of the model.
        raise
    except _REFUSALS as error:
        # A class that looks its attention up in a table of its own.
        own = isinstance(error, KeyError) and error.args == (attention,)
        why = "its attention cannot be exchanged for one that takes a tree" if own else str(error)
        raise unsupported(folder, f"Transformers cannot load it: {why}") from error
    _check_ties(causal, folder)
    return Network(causal).to(device)


def _check_ties(causal: Any, folder: Path) -> None:
    """Whether the two embeddings are one where the configuration says so.

    Transformers parts them where the files hold a second one that differs; vLLM does not read it.
    """
    ties = causal.config.get_text_config().tie_word_embeddings
    one, other = causal.get_input_embeddings(), causal.get_output_embeddings()
    if ties and other is not None and other.weight is not one.weight:
        raise unsupported(
            folder,
            "its files hold an output embedding that differs from the input's, and its"
            " config.json says that they are one; remove the tensor, or set tie_word_embeddings"
            " to false",
        )
