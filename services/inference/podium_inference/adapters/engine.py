"""vLLM's AsyncLLM: the one module that drives the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from podium.core.errors import (
    WEIGHTS_NOT_EXCHANGED,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
    Violation,
)
from podium.types.v1 import policy_pb2, trajectory_pb2

from podium_inference.adapters.engine_load import SchedulerLoad
from podium_inference.adapters.engine_options import engine_options, prepare_environment
from podium_inference.adapters.node_files import on_every_node
from podium_inference.adapters.node_group import NodePlace
from podium_inference.adapters.prompt_logits import adapts_head
from podium_inference.adapters.weight_files import check_weights
from podium_inference.domain.ports import Piece, Run
from podium_inference.settings import Settings

logger = logging.getLogger(__name__)

_FINISH = {
    "stop": trajectory_pb2.FINISH_REASON_STOP,
    "length": trajectory_pb2.FINISH_REASON_LENGTH,
    "abort": trajectory_pb2.FINISH_REASON_ABORTED,
}


def versions_of(completion: Any) -> list[Run]:
    """Which versions sampled vLLM's `completion`; nothing before its end, and of adapters."""
    return [
        (span.end - span.start, int(span.version))
        for span in completion.weight_versions or ()
        # Before the first exchange vLLM calls its weights `default`.
        if span.version.isdigit() and span.end > span.start
    ]


class VllmEngine:
    """`Engine` over AsyncLLM, whose core runs in a child process."""

    def __init__(self, settings: Settings, model: Path, place: NodePlace | None = None) -> None:
        """Starts the engine; takes half a minute. Blocking, on the event loop's thread.

        Args:
            place: this node's, where the engine has several.

        Raises:
            RuntimeError: the engine cannot start.
        """
        prepare_environment(settings)
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        options = engine_options(settings, model, place)
        self.dtype: str = options["dtype"]
        self.load = SchedulerLoad()
        self.llm = AsyncLLM.from_engine_args(
            # Whose defaults are for the memory that the GPU has.
            AsyncEngineArgs(**options),
            usage_context=UsageContext.OPENAI_API_SERVER,
            stat_loggers=[self.load.recorder()],
        )
        self.tokenizer: Any = self.llm.get_tokenizer()
        self.max_model_len: int = self.llm.model_config.max_model_len
        self.max_num_seqs: int = self.llm.vllm_config.scheduler_config.max_num_seqs
        self.vocab_size: int = self.llm.model_config.get_vocab_size()
        self._model = model
        self._nodes = settings.nodes
        parts = settings.tensor_parallel_size * settings.pipeline_parallel_size
        self.gpus = 0 if current_platform.is_cpu() else parts
        self._lacks_buffers = settings.pipeline_parallel_size > 1 and current_platform.is_cpu()
        self._adapters = 0
        self._by_adapters = settings.weight_mode == "adapter"
        self._max_rank = settings.max_lora_rank if self._by_adapters else 0
        self._with_heads: set[int] = set()
        """Adapters, by their ids, that change the output embedding."""
        self.keep_special_tokens = False
        """Whether special tokens stay in the text: some families write calls with them."""

    async def prepare(self) -> None:
        """Makes it ready for requests; before the first."""
        if self._lacks_buffers:
            await self.llm.collective_rpc("podium_make_buffers")
        if self._by_adapters:
            await self.llm.collective_rpc("podium_mend_adapters")

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
                    versions=versions_of(completion),
                )
        except (EngineDeadError, EngineGenerateError) as error:
            raise UnavailableError("the engine has died", reason="ENGINE_DEAD") from error
        except (ValueError, VLLMValidationError) as error:
            raise InvalidArgumentError(
                violations=[Violation("sampling", f"the engine refuses it: {error}")]
            ) from error

    async def score(
        self, token_ids: Sequence[int], request_id: str, adapter: object | None
    ) -> list[float]:
        """See `Engine`. vLLM computes the whole sequence: the prefix cache has no log-probs."""
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        assert adapter is None or isinstance(adapter, LoRARequest)
        if adapter is not None and adapter.lora_int_id in self._with_heads:
            raise FailedPreconditionError(
                f"{adapter.lora_name} adapts the output embedding, with which vLLM scores no"
                " tokens beside other adapters; a pool of merged weights does",
                reason="ADAPTS_HEAD",
            )
        stream = self.llm.generate(
            {"prompt_token_ids": list(token_ids)},
            self._scoring_params(),
            request_id,
            lora_request=adapter,
        )
        found: list[float] = []
        try:
            async with aclosing(stream):
                async for output in stream:
                    # Without a word before it the first token has none.
                    pairs = zip((output.prompt_logprobs or [])[1:], token_ids[1:], strict=False)
                    found = [choices[token].logprob for choices, token in pairs]
        except (EngineDeadError, EngineGenerateError) as error:
            raise UnavailableError("the engine has died", reason="ENGINE_DEAD") from error
        return found

    async def check(self, weights: Path) -> None:
        """See `Engine`."""
        await asyncio.to_thread(check_weights, self._model, weights, max_rank=self._max_rank)

    def spread(self, weights: Path) -> AbstractAsyncContextManager[None]:
        """See `Engine`."""
        return on_every_node(self.llm.collective_rpc, weights) if self._nodes > 1 else nullcontext()

    async def merge(self, weights: Path | None, version: int) -> None:
        """See `Engine`."""
        answers = await self.llm.collective_rpc(
            "podium_set_policy", args=(str(self._model), str(weights or ""))
        )
        if any(answers):
            raise RuntimeError(next(filter(None, answers)))
        # With what runs: that is at least what was aborted and is on its way out.
        await self.llm.reset_prefix_cache(reset_running_requests=True)
        await self.llm.update_weight_version(str(version))

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """See `Engine`. vLLM stops between two steps, and computes what it kept anew."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await self.llm.pause_generation(mode="keep", clear_cache=True)
        except EngineDeadError as error:
            raise UnavailableError("the engine has died", reason="ENGINE_DEAD") from error
        except Exception as error:
            await self.llm.resume_generation()
            raise UnavailableError(
                f"the engine cannot be stopped: {error}", reason=WEIGHTS_NOT_EXCHANGED
            ) from error
        try:
            yield
        finally:
            await self.llm.resume_generation()

    async def drop(self) -> None:
        """See `Engine`."""
        await self.llm.pause_generation(mode="abort")
        await self.llm.resume_generation()

    async def add_adapter(self, name: str, folder: Path) -> object:
        """See `Engine`."""
        from vllm.lora.request import LoRARequest
        from vllm.v1.engine.exceptions import EngineDeadError

        # Ids are never reused: the prefix cache is keyed by them.
        self._adapters += 1
        request = LoRARequest(lora_name=name, lora_int_id=self._adapters, lora_path=str(folder))
        if await asyncio.to_thread(adapts_head, folder):
            self._with_heads.add(request.lora_int_id)
        try:
            await self.llm.add_lora(request)
        except EngineDeadError as error:
            raise UnavailableError("the engine has died", reason="ENGINE_DEAD") from error
        except Exception as error:
            # Such as a kind of adapter that vLLM does not know.
            self._with_heads.discard(request.lora_int_id)
            logger.warning("vLLM refused an adapter", exc_info=error)
            raise FailedPreconditionError(
                f"the adapter cannot be served: vLLM refused {name}; the pool's log says why",
                reason="BAD_ADAPTER",
            ) from error
        return request

    async def remove_adapter(self, handle: object) -> None:
        """See `Engine`."""
        await self.llm.remove_lora(handle.lora_int_id)  # type: ignore[attr-defined]

    @staticmethod
    def _scoring_params() -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        # vLLM must sample one token; at temperature 0 it draws nothing.
        return SamplingParams(
            temperature=0,
            max_tokens=1,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

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
