"""Podium's sampler: the inference service's own engine, in a process of its own."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from podium_inference.adapters.engine import VllmEngine
from podium_inference.adapters.engine_options import for_this_device
from podium_inference.settings import Settings

from bench.trainer.measure import tell
from bench.trainer.task import PROMPTS, Setup

Sampled = list[tuple[list[int], list[float]]]
"""Token ids and their log-probs, in nats, of each completion."""


def serve(connection: Connection, setup: Setup) -> None:
    """Answers with the prompts' tokens first; then `("sample", step)` and `("load", folder)`."""
    asyncio.run(_serve(connection, setup))


async def _serve(connection: Connection, setup: Setup) -> None:
    settings = Settings(dtype="float32", model=setup.model, seed=setup.seed)
    engine = VllmEngine(for_this_device(settings), Path(setup.model))
    prompts = [_tokens(engine.tokenizer, text) for text in PROMPTS]
    tell(connection, prompts)
    try:
        while True:
            order, value = await asyncio.to_thread(connection.recv)
            if order == "sample":
                tell(connection, await _sample(engine, prompts, setup, value))
            else:
                await engine.merge(Path(value), 0)
                tell(connection, None)
    finally:
        engine.close()


def _tokens(tokenizer: Any, text: str) -> list[int]:
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
    )
    return list(tokenizer(rendered, add_special_tokens=False)["input_ids"])


async def _sample(
    engine: VllmEngine, prompts: list[list[int]], setup: Setup, step: int
) -> list[Sampled]:
    """One request a completion, as rollouts send them."""

    async def one(prompt: list[int], name: str) -> tuple[list[int], list[float]]:
        ids: list[int] = []
        logprobs: list[float] = []
        async for output in engine.llm.generate({"prompt_token_ids": prompt}, _params(setup), name):
            (piece,) = output.outputs
            new = list(piece.token_ids)
            ids += new
            logprobs += [
                found[token].logprob for found, token in zip(piece.logprobs, new, strict=True)
            ]
        return ids, logprobs

    found = await asyncio.gather(
        *(
            one(prompt, f"{step}-{index}-{number}")
            for index, prompt in enumerate(prompts)
            for number in range(setup.group)
        )
    )
    return [found[start : start + setup.group] for start in range(0, len(found), setup.group)]


def _params(setup: Setup) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=1.0,
        max_tokens=setup.completion,
        ignore_eos=True,
        logprobs=0,
        output_kind=RequestOutputKind.DELTA,
    )
