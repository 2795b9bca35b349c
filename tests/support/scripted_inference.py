"""The inference service, all of it real but the engine: what it samples stands in a script.

`python -m support.scripted_inference`, with the service's own variables and `PODIUM_TEST_SCRIPT`: a
JSON list of pairs, a pattern and a reply. Of the first pattern that is found in a prompt the reply
is sampled, by the model's own tokenizer, token by token.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

import podium_inference.__main__ as service
from podium.types.v1 import policy_pb2
from podium_inference.adapters.engine_load import SchedulerLoad
from podium_inference.adapters.engine_options import engine_options, prepare_environment
from podium_inference.domain.ports import Piece
from podium_inference.settings import Settings

SCRIPT = "PODIUM_TEST_SCRIPT"
LOGPROB = -0.25
_AT_ONCE = 3


class ScriptedLlm:
    """vLLM's AsyncLLM as its server knows it; its configuration and renderer are vLLM's own."""

    is_running, is_stopped, errored = True, False, False

    def __init__(self, config: Any, script: Sequence[tuple[str, str]]) -> None:
        from vllm.renderers import renderer_from_config
        from vllm.v1.engine.input_processor import InputProcessor

        self.vllm_config = config
        self.model_config = config.model_config
        self.renderer = renderer_from_config(config)
        self.input_processor = InputProcessor(config, self.renderer)
        self.tokenizer: Any = self.renderer.tokenizer
        self._script = script

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def check_admission(self, n: int = 1, request_id: str | None = None) -> None:
        """Takes any number."""

    async def generate(
        self, prompt: Any, params: Any, request_id: str, **_: Any
    ) -> AsyncGenerator[Any, None]:
        from vllm.logprobs import Logprob
        from vllm.outputs import CompletionOutput, RequestOutput
        from vllm.sampling_params import RequestOutputKind

        asked = list(prompt["prompt_token_ids"])
        ids = self.tokenizer.encode(self._reply(asked), add_special_tokens=False)
        ids.append(self.tokenizer.eos_token_id)
        ended = "stop" if len(ids) <= (params.max_tokens or len(ids)) else "length"
        ids = ids[: params.max_tokens]
        whole = params.output_kind == RequestOutputKind.FINAL_ONLY
        size = len(ids) if whole else _AT_ONCE
        for first in range(0, len(ids), size):
            last = first + size >= len(ids)
            part = ids[first : first + size]
            text = self._text(ids[: first + size])[len(self._text(ids[:first])) :]
            outputs = [
                CompletionOutput(
                    index=index,
                    text=text,
                    token_ids=part,
                    cumulative_logprob=LOGPROB * len(part),
                    logprobs=[{token: Logprob(LOGPROB)} for token in part]
                    if params.logprobs is not None
                    else None,
                    finish_reason=ended if last else None,
                )
                for index in range(params.n)
            ]
            yield RequestOutput(request_id, None, asked, None, outputs, last, num_cached_tokens=0)
            await asyncio.sleep(0)

    def _reply(self, asked: Sequence[int]) -> str:
        text = self.tokenizer.decode(asked)
        return next((reply for found, reply in self._script if re.search(found, text)), "")

    def _text(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


class ScriptedEngine:
    """`VllmEngine` without an engine: any weights will do."""

    dead = False
    gpus = 0
    keep_special_tokens = False

    def __init__(self, settings: Settings, model: Path, place: object = None) -> None:
        prepare_environment(settings)
        from vllm.engine.arg_utils import AsyncEngineArgs

        options = engine_options(settings, model)
        self.dtype: str = options["dtype"]
        # It has no queue: nothing ever waits.
        self.load = SchedulerLoad()
        config = AsyncEngineArgs(**options).create_engine_config()
        self.llm = ScriptedLlm(config, json.loads(os.environ[SCRIPT]))
        self.tokenizer = self.llm.tokenizer
        self.max_model_len: int = config.model_config.max_model_len
        self.max_num_seqs: int = config.scheduler_config.max_num_seqs
        self.vocab_size: int = config.model_config.get_vocab_size()

    async def prepare(self) -> None:
        """Is ready."""

    def close(self) -> None:
        """Has no core."""

    def generate(
        self, prompt: Sequence[int], sampling: policy_pb2.SamplingParams, request_id: str, _: object
    ) -> AsyncGenerator[Piece, None]:
        raise NotImplementedError("agents call over HTTP")

    async def check(self, weights: Path) -> None:
        """Takes any."""

    def spread(self, weights: Path) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def merge(self, weights: Path | None, version: int) -> None:
        """Samples by the script, whatever the weights."""


if __name__ == "__main__":
    service.VllmEngine = ScriptedEngine  # type: ignore[assignment,misc]
    service.main()
