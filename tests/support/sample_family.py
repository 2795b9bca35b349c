"""`python -m support.sample_family FOLDER...`: real vLLM samples from tiny models, as JSON."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from podium_inference.adapters.engine_options import latent_attention

PROMPT = [5, 6, 7, 8, 9, 10]
ATTEMPTS, LENGTH = 4, 20
TEMPERATURE = 0.7


def main(folders: list[str]) -> None:
    """Prints a line a folder: a list of {"tokens", "logprobs"}, one an attempt.

    One process for all of them: importing vLLM takes longer than running a tiny model in it.
    """
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    for folder in folders:
        print(json.dumps(sample(folder)), flush=True)
        gc.collect()
        cleanup_dist_env_and_memory()


def sample(folder: str) -> list[dict[str, list[Any]]]:
    """The attempts of an engine of its own."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        folder,
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=256,
        # It is warmed up with as much as it may get at once.
        max_num_seqs=ATTEMPTS,
        max_num_batched_tokens=256,
        kv_cache_memory_bytes=64 << 20,
        logprobs_mode="processed_logprobs",
        enable_prefix_caching=False,
        **latent_attention(Path(folder), "float32"),
    )
    params = SamplingParams(
        n=ATTEMPTS,
        max_tokens=LENGTH,
        temperature=TEMPERATURE,
        logprobs=0,
        seed=1,
        ignore_eos=True,
        detokenize=False,
    )
    (answer,) = engine.generate([{"prompt_token_ids": PROMPT}], params)
    return [
        {
            "tokens": list(output.token_ids),
            "logprobs": [
                step[token].logprob
                for token, step in zip(output.token_ids, output.logprobs, strict=True)
            ],
        }
        for output in answer.outputs
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
