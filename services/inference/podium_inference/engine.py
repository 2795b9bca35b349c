"""vLLM's AsyncLLM: the one module that drives the engine."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from podium.core.errors import InvalidArgumentError, UnavailableError, Violation
from podium.types.v1 import policy_pb2, trajectory_pb2

from podium_inference.settings import Settings
from podium_inference.weight_files import check_weights

logger = logging.getLogger(__name__)

_FINISH = {
    "stop": trajectory_pb2.FINISH_REASON_STOP,
    "length": trajectory_pb2.FINISH_REASON_LENGTH,
    "abort": trajectory_pb2.FINISH_REASON_ABORTED,
}


@dataclass
class Piece:
    """What came since the last piece."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: int = trajectory_pb2.FINISH_REASON_UNSPECIFIED
    cached_prompt_tokens: int = 0


class Engine(Protocol):
    """Samples, and takes weights."""

    max_model_len: int
    vocab_size: int

    def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        """Continues a prompt; closing the generator aborts in the engine.

        Raises:
            UnavailableError: the engine has died.
        """
        ...

    async def check(self, weights: Path) -> None:
        """Raises FailedPreconditionError (BAD_ADAPTER, BAD_WEIGHTS) for unusable files."""
        ...

    async def merge(self, weights: Path | None) -> None:
        """Exchanges the weights for base plus adapter, or for whole ones; nothing may run."""
        ...

    async def add_adapter(self, name: str, folder: Path) -> object:
        """Registers an adapter and returns its handle."""
        ...

    async def remove_adapter(self, handle: object) -> None:
        """Forgets an adapter."""
        ...


class VllmEngine:
    """`Engine` over AsyncLLM, whose core runs in a child process."""

    def __init__(self, settings: Settings, model: Path) -> None:
        """Starts the engine; takes half a minute. Blocking, on the event loop's thread.

        Raises:
            RuntimeError: the engine cannot start.
        """
        _prepare_environment()
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        options: dict[str, Any] = {
            "model": str(model),
            "served_model_name": settings.model,
            "max_model_len": settings.max_model_len,
            "max_num_seqs": settings.max_num_seqs,
            "tensor_parallel_size": settings.tensor_parallel_size,
            "gpu_memory_utilization": settings.gpu_memory_utilization,
            "enforce_eager": settings.enforce_eager,
            "enable_prefix_caching": True,
            # The distribution that is sampled from, temperature included.
            "logprobs_mode": "processed_logprobs",
            "seed": settings.seed,
        }
        if settings.weight_mode == "merged":
            options["worker_extension_cls"] = "podium_inference.worker_extension.PolicyWorker"
        else:
            options |= {
                "enable_lora": True,
                "max_loras": settings.max_loras,
                "max_cpu_loras": 4 * settings.max_loras,
                "max_lora_rank": settings.max_lora_rank,
            }
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            options["kv_cache_memory_bytes"] = settings.kv_cache_bytes
            # The prefix cache shares whole blocks, and 128 tokens are a whole short prompt.
            options["block_size"] = 32
            # One process less to poll, on cores that are few.
            if settings.tensor_parallel_size == 1:
                options["distributed_executor_backend"] = "uni"
            # A prompt in pieces draws from its request's own generator too early, and vLLM
            # cannot wind a CPU generator back: seeded requests would kill the engine.
            options["enable_chunked_prefill"] = False
            options["max_num_batched_tokens"] = max(4096, settings.max_model_len)
        options["dtype"] = self.dtype = _dtype(settings.dtype, current_platform.is_cpu())
        self.llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**options))
        self.tokenizer: Any = self.llm.get_tokenizer()
        self.max_model_len: int = self.llm.model_config.max_model_len
        self.vocab_size: int = self.llm.model_config.get_vocab_size()
        self._model = model
        self._adapters = 0
        self.keep_special_tokens = False
        """Whether special tokens stay in the text: some families write calls with them."""

    @property
    def dead(self) -> bool:
        """Whether the engine's core has died."""
        return bool(self.llm.errored)

    def close(self) -> None:
        """Ends the core."""
        self.llm.shutdown()

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        """See `Engine`."""
        from vllm.exceptions import VLLMValidationError
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        assert adapter is None or isinstance(adapter, LoRARequest)
        stream = self.llm.generate(
            {"prompt_token_ids": list(prompt)},
            self._params(prompt, sampling),
            request_id,
            lora_request=adapter,
        )
        try:
            async for output in stream:
                (completion,) = output.outputs
                ids = list(completion.token_ids)
                pairs = zip(completion.logprobs or (), ids, strict=True)
                yield Piece(
                    token_ids=ids,
                    logprobs=[choices[token].logprob for choices, token in pairs],
                    text=completion.text,
                    finish_reason=_FINISH.get(completion.finish_reason or "", 0),
                    cached_prompt_tokens=output.num_cached_tokens or 0,
                )
        except (EngineDeadError, EngineGenerateError) as error:
            raise UnavailableError("the engine has died", reason="ENGINE_DEAD") from error
        except (ValueError, VLLMValidationError) as error:
            raise InvalidArgumentError(
                violations=[Violation("sampling", f"the engine refuses it: {error}")]
            ) from error

    async def check(self, weights: Path) -> None:
        """See `Engine`."""
        await asyncio.to_thread(check_weights, self._model, weights)

    async def merge(self, weights: Path | None) -> None:
        """See `Engine`."""
        await self.llm.collective_rpc(
            "podium_set_policy", args=(str(self._model), str(weights or ""))
        )
        await self.llm.reset_prefix_cache()

    async def add_adapter(self, name: str, folder: Path) -> object:
        """See `Engine`."""
        from vllm.lora.request import LoRARequest

        # Ids are never reused: the prefix cache is keyed by them.
        self._adapters += 1
        request = LoRARequest(lora_name=name, lora_int_id=self._adapters, lora_path=str(folder))
        await self.llm.add_lora(request)
        return request

    async def remove_adapter(self, handle: object) -> None:
        """See `Engine`."""
        await self.llm.remove_lora(handle.lora_int_id)  # type: ignore[attr-defined]

    def _params(self, prompt: Sequence[int], sampling: policy_pb2.SamplingParams) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        room = self.max_model_len - len(prompt)
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=min(sampling.max_tokens, room),
            stop=list(sampling.stop),
            seed=sampling.seed if sampling.HasField("seed") else None,
            logprobs=0,
            skip_special_tokens=not self.keep_special_tokens,
            structured_outputs=(
                StructuredOutputsParams(json=sampling.json_schema) if sampling.json_schema else None
            ),
            output_kind=RequestOutputKind.DELTA,
        )


def _dtype(wanted: str, cpu: bool) -> str:
    if wanted != "auto":
        return wanted
    import torch

    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return "float32" if cpu and not native else "bfloat16"


def _prepare_environment() -> None:
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # On the CPU vLLM keeps a core for its own scheduler, half of a laptop's.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # AsyncLLM's core is a process in any case; this lets it run the model itself.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }.items():
        os.environ.setdefault(name, value)
    # The engine's own process loads it: GNU's OpenMP, which torch brings, stands still
    # when another process takes a core from one of its threads.
    openmp = Path(sys.prefix, "lib", "libiomp5.so")
    if openmp.exists():
        os.environ.setdefault("LD_PRELOAD", str(openmp))
