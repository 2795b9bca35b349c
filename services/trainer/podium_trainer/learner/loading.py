"""A model that several processes read together, each its own part.

Transformers makes the model without memory (on the meta device) and asks `_Reader` for its
weights. What a file holds as the model does is read by slices: of each tensor a process reads the
rows that it keeps. What Transformers converts, such as experts that a file holds one by one, is
made whole, one tensor at a time, and cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from safetensors import safe_open
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    rename_source_key,
)
from transformers.utils.logging import disable_progress_bar

from podium_trainer.learner.network import check_read

Slices = dict[str, Any]
"""By name in the files: safetensors' slices, of which nothing is read yet."""


def load_parts(folder: str, dtype: torch.dtype, attention: str, mesh: DeviceMesh) -> Any:
    """As `network.load`, with this process's part of every weight: a DTensor of its first rows.

    Parts are those that FSDP2 makes: dimension 0 in as many pieces as there are processes.
    Buffers are whole in each. Every process must ask; nothing travels between them.

    Raises:
        ValueError, ImportError, KeyError, OSError: see `network.load`.
    """
    disable_progress_bar()
    with torch.device("meta"):
        planned = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False),
            trust_remote_code=False,
        )
    kind = type(planned)
    # By its own name, which Transformers goes by in places.
    reader: Any = type(
        kind.__name__, (_Reader, kind), {"__module__": kind.__module__, "parts_mesh": mesh}
    )
    causal, read = reader.from_pretrained(
        folder,
        config=planned.config,
        dtype=dtype,
        attn_implementation=attention,
        local_files_only=True,
        output_loading_info=True,
    )
    check_read(read)
    causal.__class__ = kind
    return causal.eval()


class _Reader:
    """What reads weights in a class of Transformers' that `from_pretrained` is called of."""

    parts_mesh: Any

    @classmethod
    def _load_pretrained_model(
        cls,
        model: Any,
        state_dict: Mapping[str, Any] | None,
        checkpoint_files: Sequence[str] | None,
        load_config: Any,
        expected_keys: Sequence[str] | None = None,
    ) -> tuple[Any, Any]:
        read = super()._load_pretrained_model  # type: ignore[misc]
        mesh = cls.parts_mesh
        files = checkpoint_files or []
        if not files or not all(str(file).endswith(".safetensors") for file in files):
            raise ValueError("several processes read weights from safetensors files, and got none")
        with ExitStack() as opened:
            slices: Slices = {}
            for file in files:
                tensors = opened.enter_context(safe_open(file, framework="pt"))
                slices |= {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118
            plain, converted = _apart(model, slices, load_config.weight_mapping or [])
            for name, parameter in list(model.named_parameters()):
                if name in plain:
                    _put(model, name, _part(parameter, mesh))
            loaded = None
            for sources in [*_by_layer(plain), *converted.values()]:
                more, _ = read(model, sources, None, load_config, expected_keys)
                _cut(model, mesh)
                loaded = more if loaded is None else _joined(loaded, more)
        return loaded, None


def _apart(
    model: Any, slices: Slices, mapping: Sequence[Any]
) -> tuple[dict[str, tuple[str, Any]], dict[str, Slices]]:
    """What the files hold as the model does, by the model's names; and what makes each other one.

    A name that the model does not have is among the first, for Transformers to report.

    Raises:
        ValueError: a tensor has another shape than the model's.
    """
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    converters = [each for each in mapping if isinstance(each, WeightConverter)]
    names = model.state_dict()
    plain: dict[str, tuple[str, Any]] = {}
    converted: dict[str, Slices] = {}
    for key, held in slices.items():
        prefix = model.base_model_prefix
        name, pattern = rename_source_key(key, renamings, converters, prefix, names)
        if name not in names and key in names:
            name, pattern = rename_source_key(key, [], [], prefix, names)
        if pattern is None:
            plain[name] = (key, held)
            shape = tuple(held.get_shape())
            # Parts may fit where wholes do not, in some of the processes.
            if name in names and shape != tuple(names[name].shape):
                raise ValueError(f"{key} is {shape} in the files, not {tuple(names[name].shape)}")
        else:
            converted.setdefault(name, {})[key] = held
    return plain, converted


def _cut(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Keeps this process's part of what was loaded whole, and lets go of mapped files."""
    for name, parameter in list(model.named_parameters(remove_duplicate=False)):
        if isinstance(parameter, DTensor):
            local = parameter.to_local()
            if local.is_meta or _owns(local):
                continue
            part = _of(local.clone(), parameter)
        elif parameter.is_meta:
            continue
        else:
            whole = _part(parameter, mesh)
            part = _of(whole.to_local().clone(), whole)
        _put(model, name, part)


def _owns(tensor: torch.Tensor) -> bool:
    """Whether nothing but the tensor is in its memory: a slice may be a view of a file."""
    return tensor.untyped_storage().nbytes() == tensor.nbytes


def _part(tensor: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    return distribute_tensor(tensor.detach(), mesh, [Shard(0)], src_data_rank=None)


def _of(local: torch.Tensor, like: DTensor) -> DTensor:
    return DTensor.from_local(
        local,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def _put(model: torch.nn.Module, name: str, value: DTensor) -> None:
    path, _, last = name.rpartition(".")
    module = model.get_submodule(path)
    parameter = torch.nn.Parameter(value, requires_grad=value.is_floating_point())
    # Transformers makes anew what is not marked so.
    if getattr(module._parameters[last], "_is_hf_initialized", False):
        parameter._is_hf_initialized = True  # type: ignore[attr-defined]
    setattr(module, last, parameter)


def _by_layer(plain: Mapping[str, tuple[str, Any]]) -> list[Slices]:
    """A layer at a time, so that no more of the files than that is in memory."""
    layers: dict[str, Slices] = {}
    for name, (key, held) in plain.items():
        number = re.search(r"\.(\d+)\.", name)
        layers.setdefault(number[1] if number else "", {})[key] = held
    return list(layers.values())


def _joined(loaded: Any, more: Any) -> Any:
    loaded.missing_keys &= more.missing_keys
    loaded.unexpected_keys |= more.unexpected_keys
    loaded.mismatched_keys |= more.mismatched_keys
    loaded.conversion_errors |= more.conversion_errors
    loaded.error_msgs += more.error_msgs
    return loaded
