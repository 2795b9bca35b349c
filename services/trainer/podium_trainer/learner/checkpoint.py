"""A version's files. No pickle.

An adapter:

    adapter/adapter_config.json         what PEFT and vLLM load
    adapter/adapter_model.safetensors   float32 masters
    state/optimizer.safetensors         moments and update counts
    state/state.json                    step, random state, what was trained and how

Whole weights, of which each process writes its part, in files of about 2 GB:

    model/                              what Transformers and vLLM load, in the base's type
    delta/                              what of it differs from the parent's (podium.kit.deltas)
    state/shards/                       float32 masters, moments and update counts
    state/state.json                    as above

A state that is stored behind its weights holds all that resumes it, an adapter's masters too:

    state/adapter_model.safetensors     the bytes of adapter/, unless a step that was taken
                                        again, as on a GPU, came out otherwise

"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from huggingface_hub import save_torch_state_dict
from podium.core.errors import DataLossError
from podium.local.models import tensors_of, unread, unsupported
from podium.local.models.merging import copy_beside
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion

from podium_trainer.learner.network import constants
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.sharded import Shards

ADAPTER_CONFIG = "adapter/adapter_config.json"
ADAPTER_WEIGHTS = "adapter/adapter_model.safetensors"
OPTIMIZER = "state/optimizer.safetensors"
STATE_WEIGHTS = "state/adapter_model.safetensors"
MODEL = "model"
READ = ("adapter/", "state/")
"""Where in a version lies what continues it."""
SHARDS = "state/shards"
STATE = "state/state.json"
FORMAT = 1

_FILE_BYTES = "2GB"
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "BOOL": torch.bool,
}
"""By their names in files."""


class Saving(Enum):
    """What of a checkpoint is stored, and when."""

    WITH = "with"
    """Weights and state, as one version."""
    BEHIND = "behind"
    """Weights first, and their state as soon as may be."""
    NONE = "none"
    """Weights alone."""
    STATE = "state"
    """State alone: the weights are published already."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that the next step depends on."""

    step: int
    weights: Mapping[str, torch.Tensor]
    """Float32: of an adapter by the names in its file; of whole weights by the model's own
    names those that this process stores, with what of the model is constant, and none when it
    was read."""
    adapter_config: Mapping[str, Any]
    """Empty for whole weights."""
    optimizer: Mapping[str, torch.Tensor]
    """Of an adapter; empty before the first update."""
    rng: torch.Tensor
    """torch's generator state, uint8."""
    base_model_digest: str
    config_digest: str
    """Of the training specification."""
    shards: Shards | Path | None = None
    """Of whole weights: masters and optimizer, being written, or where they were read."""
    supervised: bool | None = None
    """Whether the moments are of demonstrations; None before the first update, and of a version
    that does not say."""

    @property
    def is_full(self) -> bool:
        """Whether it holds whole weights instead of an adapter."""
        return not self.adapter_config


def write(checkpoint: Checkpoint, base: Path, folder: Path, ranks: Ranks) -> dict[str, Path]:
    """Writes this process's files, weights and state, into `folder`; returns them by their paths.

    The same bytes for the same state. Whole weights come with the configuration and
    tokenizer of the model in `base`; they lack `model/` an index when several processes
    write it.
    """
    write_weights(checkpoint, base, folder, ranks)
    _write_state(checkpoint, folder, ranks)
    return _files(folder)


def write_weights(
    checkpoint: Checkpoint, base: Path, folder: Path, ranks: Ranks
) -> dict[str, Path]:
    """As `write`, of what serves the version alone."""
    folder.mkdir(parents=True)
    if checkpoint.is_full:
        _write_model(checkpoint.weights, base, folder / MODEL, ranks)
    else:
        (folder / ADAPTER_CONFIG).parent.mkdir()
        (folder / ADAPTER_CONFIG).write_bytes(_json(checkpoint.adapter_config))
        (folder / ADAPTER_WEIGHTS).write_bytes(_tensors(checkpoint.weights))
    return _files(folder)


def write_state(checkpoint: Checkpoint, folder: Path, ranks: Ranks) -> dict[str, Path]:
    """As `write`, of what resumes the version alone, its adapter's masters with it."""
    folder.mkdir(parents=True)
    _write_state(checkpoint, folder, ranks)
    if not checkpoint.is_full:
        (folder / STATE_WEIGHTS).write_bytes(_tensors(checkpoint.weights))
    return _files(folder)


def _write_state(checkpoint: Checkpoint, folder: Path, ranks: Ranks) -> None:
    (folder / STATE).parent.mkdir()
    if not checkpoint.is_full:
        (folder / OPTIMIZER).write_bytes(_tensors(checkpoint.optimizer))
    elif isinstance(checkpoint.shards, Shards):
        (folder / SHARDS).mkdir()
        for file in checkpoint.shards.wait():
            # Not moved: what could not be stored is stored again.
            os.link(file, folder / SHARDS / file.name)
    if ranks.rank == 0:
        (folder / STATE).write_bytes(_json(_state(checkpoint)))


def _files(folder: Path) -> dict[str, Path]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def model_index(files: Mapping[str, str], size: int) -> bytes:
    """The index of `model/`: `files` by tensor, and the bytes of all tensors."""
    return _json({"metadata": {"total_size": size}, "weight_map": dict(files)})


def _state(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "step": checkpoint.step,
        "rng": {"torch": base64.b64encode(bytes(checkpoint.rng.tolist())).decode()},
        "base_model_digest": checkpoint.base_model_digest,
        "config_digest": checkpoint.config_digest,
        "supervised": checkpoint.supervised,
    }


def _write_model(
    weights: Mapping[str, torch.Tensor], base: Path, folder: Path, ranks: Ranks
) -> None:
    folder.mkdir()
    if ranks.rank == 0:
        copy_beside(base, folder)
    if not weights:
        # There are more processes than layers.
        return
    model, files = _outline(base), tensors_of(base)
    # Transformers knows which names and shapes a model's files have.
    named = revert_weight_conversion(model, dict(weights))
    save_torch_state_dict(
        {name: _alone(tensor.to(_TYPES[files[name].dtype])) for name, tensor in named.items()},
        folder,
        filename_pattern=f"model{ranks.mark}{{suffix}}.safetensors",
        max_shard_size=_FILE_BYTES,
    )
    if ranks.sharded:
        # Of this part alone; the first process makes that of all.
        (folder / f"model{ranks.mark}.safetensors.index.json").unlink(missing_ok=True)


def check_published(base: Path) -> None:
    """Whether whole weights of the model in `base` would have the names and shapes of its files.

    Whoever serves a version holds it to them.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: they would not.
    """
    model, files = _outline(base), tensors_of(base)
    held = dict(model.named_parameters()) | constants(model)
    named = revert_weight_conversion(model, held)
    for name, tensor in sorted(named.items()):
        if name not in files or files[name].shape != tuple(tensor.shape):
            raise unsupported(
                base,
                f"its files have no {name} of shape {tuple(tensor.shape)}, under which a version"
                " of whole weights would be published; allowed is TRAINABLE_KIND_LORA",
            )
    lacking = files.keys() - named.keys()
    if lacking := lacking - unread(base, lacking):
        raise unsupported(
            base,
            f"its files hold {min(lacking)}, which Transformers does not read, so that a version of"
            " whole weights would lack it; allowed is TRAINABLE_KIND_LORA",
        )


def _outline(base: Path) -> Any:
    """The model of `base` without its numbers."""
    config = AutoConfig.from_pretrained(base, trust_remote_code=False)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in memory of its own: an expert is a view of its stack, which no file takes."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def read(folder: Path) -> Checkpoint:
    """The checkpoint whose files lie in `folder`; whole weights stay there.

    Raises:
        DataLossError: a file is missing or is not what it should be.
    """
    state = _read_json(folder / STATE)
    try:
        if state["format"] != FORMAT:
            raise DataLossError(
                f"{STATE} has format {state['format']}; this trainer reads {FORMAT}"
            )
        rng = base64.b64decode(state["rng"]["torch"], validate=True)
        full = (folder / SHARDS).is_dir()
        return Checkpoint(
            step=int(state["step"]),
            weights={} if full else _read_tensors(_first(folder, STATE_WEIGHTS, ADAPTER_WEIGHTS)),
            adapter_config={} if full else _read_json(folder / ADAPTER_CONFIG),
            optimizer={} if full else _read_tensors(folder / OPTIMIZER),
            rng=torch.frombuffer(bytearray(rng), dtype=torch.uint8),
            base_model_digest=str(state["base_model_digest"]),
            config_digest=str(state["config_digest"]),
            shards=folder / SHARDS if full else None,
            supervised=_whether(state.get("supervised")),
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise DataLossError(f"{STATE} is damaged: {error!r}") from error


def _whether(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise ValueError(f"supervised is {value!r}")


def _first(folder: Path, *paths: str) -> Path:
    """The first of the paths at which there is a file; the last one otherwise."""
    return next((folder / path for path in paths if (folder / path).is_file()), folder / paths[-1])


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"


def _tensors(tensors: Mapping[str, torch.Tensor]) -> bytes:
    plain = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataLossError(f"{path.name} cannot be read: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise DataLossError(f"{path.name} holds no JSON object")
    return value


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise DataLossError(f"{path.name} cannot be read: {type(error).__name__}") from error
