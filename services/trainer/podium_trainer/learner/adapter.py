"""LoRA through peft: which layers, a seeded start, and PEFT's file layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers
from podium.core.errors import InvalidArgumentError, Violation
from podium.local.models import name_in_files, tensors_of, unsupported
from podium.types.v1 import spec_pb2

from podium_trainer.learner.experts import (
    EXPERTS,
    PREFIX,
    STACKS,
    Experts,
    find_experts,
    has_experts,
)
from podium_trainer.learner.frozen_layers import FrozenLinear
from podium_trainer.learner.network import TEXT, blocks, has_text_part

_NAME = "default"


def experts_of(model: torch.nn.Module, spec: spec_pb2.LoraSpec, folder: Path) -> Experts:
    """The experts that train with the adapter of `spec`; `folder` holds the model's files.

    Raises:
        InvalidArgumentError: they are asked for and cannot be adapted.
    """
    return find_experts(model, folder) if EXPERTS in spec.target_modules else Experts()


def add_adapter(
    model: torch.nn.Module, spec: spec_pb2.LoraSpec, seed: int, experts: Experts
) -> PeftModel:
    """Wraps `model` with a fresh adapter, which changes nothing: B is zero, A is seeded.

    Raises:
        InvalidArgumentError: a target module is no linear layer of the blocks.
    """
    linear = [name for name in spec.target_modules if name != EXPERTS]
    config = LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,
        target_modules=[] if experts.layers and not linear else _targets(model, linear),
        target_parameters=[f"{EXPERTS}.{stack}" for stack in STACKS] if experts.layers else None,
        # Vision and audio stay as they are: no prompt goes through them.
        exclude_modules=rf"(?!.*\b{TEXT}\.).*" if has_text_part(model) else None,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return get_peft_model(model, config)


def adapter_parameters(model: PeftModel) -> dict[str, torch.nn.Parameter]:
    """The adapter's parameters by their names in an adapter file."""
    return {
        name.replace(f".{_NAME}.", "."): parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


@contextmanager
def adapter_off(model: PeftModel) -> Iterator[None]:
    """The base model alone, within the block.

    PEFT's own way also says that the adapter does not train. FSDP reads that at a module's
    first forward pass and keeps it: a first pass without the adapter would leave it without
    the types that its gradients are added up in.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with model.disable_adapter():
        for parameter in trained:
            parameter.requires_grad_(True)
        yield


def adapter_config(model: PeftModel, base_model: str, experts: Experts) -> dict[str, Any]:
    """What `adapter_config.json` holds, the same for the same adapter.

    `base_model` is the base model's name: a folder of this machine means nothing
    to who downloads the adapter.
    """
    config = model.peft_config[_NAME].to_dict()
    config["base_model_name_or_path"] = base_model
    config["inference_mode"] = True
    if experts.layers:
        config["target_modules"] = {*(config["target_modules"] or ()), *experts.modules}
        config["target_parameters"] = None
    plain: dict[str, Any] = json.loads(json.dumps(config, default=_plain, sort_keys=True))
    return plain


def check_same_shape(wanted: Mapping[str, Any], published: Mapping[str, Any]) -> None:
    """Holds the adapter of a job to the one that it continues from.

    Raises:
        InvalidArgumentError: rank, alpha or target modules differ.
    """
    names = {"r": "rank", "lora_alpha": "alpha", "target_modules": "target_modules"}
    violations = [
        Violation(
            f"training.lora.{field}",
            f"got {wanted.get(key)}; the version to continue from has {published.get(key)}",
        )
        for key, field in names.items()
        if wanted.get(key) != published.get(key)
    ]
    if violations:
        raise InvalidArgumentError(violations=violations, reason="ADAPTER_DIFFERS")


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set) else str(value)


def check_served(model: PeftModel, experts: Experts, folder: Path) -> None:
    """Whether the base model's files, in `folder`, call what is adapted as the model does.

    Whoever serves the adapter looks its layers up there. Experts are named apart.

    Raises:
        InvalidArgumentError: UNSUPPORTED_MODEL: they do not.
    """
    files = tensors_of(folder)
    apart = tuple(f"{layer.module}." for layer in experts.layers)
    for name in adapter_parameters(model):
        layer = name.removeprefix(PREFIX).rpartition(".lora_")[0]
        stored = f"{name_in_files(layer, files)}.weight"
        if not f"{layer}.".startswith(apart) and stored not in files:
            raise unsupported(
                folder, f"its files have no {layer}.weight, and an adapter of it cannot be served"
            )


def _targets(model: torch.nn.Module, wanted: list[str]) -> list[str]:
    linear = sorted(
        {
            name.rpartition(".")[2]
            for name, module in blocks(model).named_modules()
            # One of a class of its own does more than multiply, such as a router of Phi's.
            if type(module) in (torch.nn.Linear, FrozenLinear)
        }
    )
    of_experts = _taken_for_experts(model, linear)
    linear = [name for name in linear if name not in of_experts]
    # Their names in the model's files are no layers'; naming one is what people try.
    more = f", and {EXPERTS}" if has_experts(model) else ""
    unknown = [name for name in wanted if name not in linear]
    if unknown or not linear:
        raise InvalidArgumentError(
            violations=[
                Violation(
                    "training.lora.target_modules",
                    f"got {', '.join(unknown) or 'none'}; the blocks of this model have "
                    f"{', '.join(linear) or 'no linear layers'}{more}",
                )
            ]
        )
    return sorted(set(wanted)) or linear


def _taken_for_experts(model: torch.nn.Module, names: list[str]) -> set[str]:
    """Of the names of linear layers those by which PEFT means a mixture's experts.

    It would adapt the stacks in the place of the dense layers that have the same names, and so
    would whoever loads the adapter with it.
    """
    taken = set()
    for name in names:
        config = LoraConfig(target_modules=[name])
        try:
            convert_peft_config_for_transformers(config, model, None)
        except ValueError:
            # Of gate and up, which are one stack, it takes both or none.
            taken.add(name)
        else:
            if config.target_parameters:
                taken.add(name)
    return taken
