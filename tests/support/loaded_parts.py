"""Models of which several processes read their parts, beside the same models read whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from podium.core.errors import InvalidArgumentError
from podium_trainer.learner.base import load_network
from podium_trainer.learner.loading import load_parts
from podium_trainer.learner.network import load
from podium_trainer.learner.parallel import Ranks
from safetensors.torch import load_file
from support.families import FAMILIES, MIXTURES, build_family, build_mixture
from support.tiny_policy import VOCABULARY, build_small_llama
from torch.distributed.tensor import DTensor, Shard

ATTENTION = "podium_dense"


def differences(ranks: Ranks, folder: Path) -> list[str]:
    """What is not as it is in the model read whole: of every family, in both types."""
    found: list[str] = []
    for name in [*FAMILIES, *MIXTURES]:
        model = folder / name
        if ranks.rank == 0:
            (build_mixture if name in MIXTURES else build_family)(name, model)
        ranks.agree(True)
        for dtype in (torch.float32, torch.bfloat16):
            found += [f"{name}, {dtype}: {what}" for what in _between(ranks, model, dtype)]
    return found


def refusals(ranks: Ranks, folder: Path) -> list[str]:
    """What is said to a model whose files are not what its configuration says, or not to be cut."""
    larger, pickled = folder / "larger", folder / "pickled"
    if ranks.rank == 0:
        build_small_llama(larger)
        config = (larger / "config.json").read_text()
        # Of three processes the first two have as many rows of both.
        (larger / "config.json").write_text(config.replace(f": {VOCABULARY}", ": 98"))
        build_small_llama(pickled)
        tensors = pickled / "model.safetensors"
        torch.save(load_file(tensors), pickled / "pytorch_model.bin")
        tensors.unlink()
    ranks.agree(True)
    said = []
    for model in (larger, pickled):
        try:
            load_network(model, torch.float32, ATTENTION, ranks.device, ranks.mesh)
        except InvalidArgumentError as error:
            said.append(error.message)
    return said


def _between(ranks: Ranks, model: Path, dtype: torch.dtype) -> Iterator[str]:
    assert ranks.mesh is not None
    one = load(str(model), dtype, ATTENTION)
    two = load_parts(str(model), dtype, ATTENTION, ranks.mesh)
    if type(one) is not type(two):
        yield "the class"
    # A tied weight is among these once.
    wholes, parts = dict(one.named_parameters()), dict(two.named_parameters())
    if list(wholes) != list(parts):
        yield "the names"
    for name, part in parts.items():
        if not isinstance(part, DTensor) or part.placements != (Shard(0),):
            yield f"{name} is no part"
            continue
        local = part.to_local()
        if local.untyped_storage().nbytes() != local.nbytes:
            yield f"{name} holds more than its part"
        if part.dtype != wholes[name].dtype or not torch.equal(part.full_tensor(), wholes[name]):
            yield name
    # Those that no file has too, such as the frequencies of rotary positions.
    first, second = dict(one.named_buffers()), dict(two.named_buffers())
    if list(first) != list(second):
        yield "the buffers' names"
    for name, buffer in second.items():
        if buffer.dtype != first[name].dtype or not torch.equal(buffer, first[name]):
            yield name
