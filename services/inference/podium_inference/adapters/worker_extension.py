"""Runs inside vLLM's worker: the policy's weights go into the engine's own, in place."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from podium.local.models import weight_files
from safetensors import safe_open

from podium_inference.adapters.base_rows import leave_base_plain
from podium_inference.adapters.node_files import NodeFiles
from podium_inference.adapters.prompt_logits import leave_prompts_plain
from podium_inference.adapters.weight_files import is_adapter

logger = logging.getLogger(__name__)

_PREFIX = "base_model.model."


class PolicyWorker(NodeFiles):
    """Mixed into vLLM's worker class (`worker_extension_cls`)."""

    model_runner: Any
    reload_weights: Any
    """vLLM's, of its worker: the model runner's under the engine's configuration, which kernels
    that are set up anew on a GPU ask for."""

    def podium_make_buffers(self) -> str:
        """Makes the buffers in which a part of the layers takes over from the part before it.

        vLLM makes them in a first run, which its CPU workers leave out in eager mode.
        """
        from vllm.distributed.parallel_state import get_pp_group

        runner = self.model_runner
        if not get_pp_group().is_first_rank and runner.intermediate_tensors is None:
            runner.intermediate_tensors = runner.model.make_empty_intermediate_tensors(
                batch_size=runner.max_num_tokens,
                dtype=runner.model_config.dtype,
                device=runner.device,
            )
        return ""

    def podium_mend_adapters(self) -> str:
        """See `prompt_logits` and `base_rows`."""
        leave_prompts_plain(self.model_runner.get_model())
        leave_base_plain()
        return ""

    def podium_set_policy(self, base: str, folder: str) -> str:
        """Loads base weights plus the adapter in `folder`, or the whole weights there.

        With an empty `folder`, base weights. The base is read from disk each time (the page
        cache holds it), so a policy never builds on the rounding of the one before it.

        Returns:
            What failed, or nothing; see `NodeFiles` for why it does not raise.
        """
        try:
            self._podium_exchange(base, folder)
        except Exception as error:
            logger.exception("the weights cannot be exchanged")
            return f"{type(error).__name__}: {error}"
        return ""

    def _podium_exchange(self, base: str, folder: str) -> None:
        source = Path(folder) if folder else None
        if source is not None and not is_adapter(source):
            weights = _merged(source, None)
        else:
            weights = _merged(Path(base), source)
        self.reload_weights(weights_iterator=weights)
        _refresh_head(self.model_runner.get_model())


def _refresh_head(model: torch.nn.Module) -> None:
    """Has the output embedding packed again for the CPU's kernels.

    vLLM's reload packs what it loads. An output embedding that is tied to the input's is
    not loaded by a name of its own, and goes on with the packed copy of the old weights.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        UnquantizedEmbeddingMethod,
    )

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            method = module.quant_method
            if isinstance(method, UnquantizedEmbeddingMethod):
                method.process_weights_after_loading(module)


def _merged(base: Path, adapter: Path | None) -> Iterator[tuple[str, torch.Tensor]]:
    factors: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    scale = 0.0
    if adapter is not None:
        factors, scale = _read_adapter(adapter)
    for shard in weight_files(base):
        with safe_open(shard, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 - not a dict
                tensor = weights.get_tensor(name)
                pair = factors.pop(name.removesuffix(".weight"), None)
                if pair is not None:
                    a, b = pair
                    delta = (b.float() @ a.float()) * scale
                    tensor = tensor.float() + delta
                yield name, tensor
    if factors:
        raise ValueError(f"adapter for layers that the base lacks, first {min(factors)}")


def _read_adapter(
    folder: Path,
) -> tuple[dict[str, tuple[torch.Tensor, torch.Tensor]], float]:
    config = json.loads((folder / "adapter_config.json").read_text())
    rank = config["r"]
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)
    halves: dict[str, dict[str, torch.Tensor]] = {}
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118 - not a dict
            layer, _, half = name.removeprefix(_PREFIX).rpartition(".lora_")
            halves.setdefault(layer, {})[half[0]] = weights.get_tensor(name)
    return {layer: (pair["A"], pair["B"]) for layer, pair in halves.items()}, scale
