"""How settings become vLLM's engine arguments, on every node the same."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.core.sockets import socket_folder

from podium_inference.adapters.node_group import NodePlace
from podium_inference.settings import Settings

_OWN = ("model", "served_model_name")
"""Arguments that may differ from node to node."""


_CPU_SEQUENCES = 64

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Greatest ranks for which vLLM makes room."""


def for_device(settings: Settings, *, cpu: bool) -> Settings:
    """The settings with what depends on the device decided, but for vLLM's own choices."""
    decided: dict[str, Any] = {}
    if settings.weight_mode == "auto":
        decided["weight_mode"] = "merged" if cpu else "adapter"
    if settings.enforce_eager == "auto":
        decided["enforce_eager"] = cpu
    if cpu and not settings.max_num_seqs:
        decided["max_num_seqs"] = _CPU_SEQUENCES
    return settings.model_copy(update=decided)


def for_this_device(settings: Settings) -> Settings:
    """As `for_device`, of the one that vLLM runs on here, which is imported for it."""
    prepare_environment(settings)
    _import_vllm()
    from vllm.platforms import current_platform

    return for_device(settings, cpu=current_platform.is_cpu())


def _import_vllm() -> None:
    """Loads its thousands of modules while Python does not look for garbage among them.

    Modules leave none, and it would look at all of them again and again: a sixth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        importlib.import_module("vllm.v1.engine.async_llm")
    finally:
        if enabled:
            gc.enable()


def engine_options(
    settings: Settings, model: Path, place: NodePlace | None = None
) -> dict[str, Any]:
    """Keyword arguments of AsyncEngineArgs.

    Args:
        settings: decided for this device.
        place: this node's, where the engine has several.
    """
    from vllm.platforms import current_platform

    cpu = current_platform.is_cpu()
    options: dict[str, Any] = {
        "model": str(model),
        "served_model_name": settings.model,
        "max_model_len": settings.max_model_len,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "enforce_eager": settings.enforce_eager,
        "enable_prefix_caching": True,
        # The distribution that is sampled from, temperature included.
        "logprobs_mode": "processed_logprobs",
        "seed": settings.seed,
        # An answer of a schema begins where the thoughts end.
        "reasoning_parser": settings.reasoning_parser,
        "dtype": _dtype(settings.dtype, cpu),
        # Not the checkpoint's top_p, top_k and penalties: under them nothing could train.
        "generation_config": "vllm",
    }
    if settings.max_num_seqs:
        options["max_num_seqs"] = settings.max_num_seqs
    if settings.weight_mode == "adapter":
        options |= {
            "enable_lora": True,
            "max_loras": settings.max_loras,
            "max_cpu_loras": 4 * settings.max_loras,
            "max_lora_rank": next(r for r in LORA_RANKS if r >= settings.max_lora_rank),
        }
    parallel = settings.tensor_parallel_size * settings.pipeline_parallel_size
    options["worker_extension_cls"] = "podium_inference.adapters.worker_extension.PolicyWorker"
    if settings.nodes > 1:
        options["distributed_executor_backend"] = "mp"
    if cpu:
        options["kv_cache_memory_bytes"] = settings.kv_cache_bytes
        # The prefix cache shares whole blocks, and 128 tokens are a whole short prompt.
        options["block_size"] = 32
        # One process less to poll, on cores that are few.
        if parallel == 1:
            options["distributed_executor_backend"] = "uni"
        # A prompt in pieces draws from its request's own generator too early, and vLLM
        # cannot wind a CPU generator back: seeded requests would kill the engine.
        options["enable_chunked_prefill"] = False
        options["max_num_batched_tokens"] = max(4096, settings.max_model_len)
        options |= latent_attention(model, options["dtype"])
    if place is not None:
        options |= {
            "nnodes": place.nodes,
            "node_rank": place.rank,
            "master_addr": place.address,
            "master_port": place.port,
        }
    return options


def latent_attention(model: Path, dtype: str) -> dict[str, Any]:
    """What a CPU's engine needs besides for multi-head latent attention, which DeepSeek and Kimi
    have; nothing for other models.

    vLLM 0.32 takes its AMX kernels wherever the processor has AMX, and they know bfloat16 alone:
    in float32 the engine would die while it loads.

    Args:
        model: its folder.
        dtype: by vLLM's name.
    """
    file = model / "config.json"
    if dtype == "bfloat16" or not file.exists():
        return {}
    config = json.loads(file.read_text(encoding="utf-8"))
    text = config.get("text_config") or config
    return {"attention_backend": "CPU_MLA"} if text.get("kv_lora_rank") else {}


def traits(settings: Settings, options: Mapping[str, Any], digest: str) -> dict[str, Any]:
    """What the nodes of a group must have in common: an engine of unlike halves computes nonsense.

    Args:
        digest: the base model's.
    """
    from vllm import __version__

    same = {name: value for name, value in sorted(options.items()) if name not in _OWN}
    return {
        "nodes": settings.nodes,
        **same,
        "base_model_digest": digest,
        # The leader's files have the same path on every node.
        "data_dir": str(settings.data_dir.absolute()),
        "vllm": __version__,
    }


def prepare_environment(settings: Settings) -> None:
    """vLLM's variables, but for those that are set; before it is imported."""
    variables = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # On the CPU vLLM keeps a core for its own scheduler, half of a laptop's.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # AsyncLLM's core is a process in any case; this lets it run the model itself.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # vLLM takes this sampler on every GPU that it knows and has it compiled when the first
        # request needs it, by nvcc, which our images lack: that request would kill the engine.
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_RPC_BASE_PATH": socket_folder(),
    }
    if settings.nodes > 1 and settings.pod_ip:
        # Otherwise the one of the route to the internet, which a pod need not have.
        variables["VLLM_HOST_IP"] = settings.pod_ip
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    # The engine's own process loads it: GNU's OpenMP, which torch brings, stands still
    # when another process takes a core from one of its threads.
    openmp = Path(sys.prefix, "lib", "libiomp5.so")
    if openmp.exists():
        os.environ.setdefault("LD_PRELOAD", str(openmp))


def _dtype(wanted: str, cpu: bool) -> str:
    if wanted != "auto":
        return wanted
    return "float32" if cpu else "bfloat16"
