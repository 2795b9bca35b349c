"""Runs inside vLLM's worker: the policy's weights go into the engine's own, in place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from podium.local.models.merging import merged_tensors

from podium_inference.adapters.base_rows import leave_base_plain
from podium_inference.adapters.node_files import NodeFiles
from podium_inference.adapters.prompt_logits import leave_prompts_plain
from podium_inference.adapters.weight_files import is_adapter

logger = logging.getLogger(__name__)


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
    for _, name, tensor, _ in merged_tensors(base, adapter):
        yield name, tensor
