"""A base model that is in memory once, whichever policies are on it."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from podium.core.errors import InvalidArgumentError, Violation
from torch.distributed.device_mesh import DeviceMesh

from podium_trainer.learner.attention import chosen
from podium_trainer.learner.families import check_family
from podium_trainer.learner.loading import load_parts
from podium_trainer.learner.network import Network, load
from podium_trainer.learner.precision import Arithmetic


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
        InvalidArgumentError: Transformers cannot load it.
    """
    attention = attention or chosen(device)
    try:
        if mesh is None:
            causal = load(str(folder), dtype, attention)
        else:
            causal = load_parts(str(folder), dtype, attention, mesh)
    except (ValueError, ImportError, KeyError) as error:
        raise InvalidArgumentError(
            violations=[Violation("base_model", f"Transformers cannot load it: {error}")],
            reason="UNSUPPORTED_MODEL",
        ) from error
    return Network(causal).to(device)
