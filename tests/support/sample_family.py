"""`python -m support.sample_family FOLDER`: real vLLM samples from a tiny model, as JSON."""

from __future__ import annotations

import json
import os
import sys

PROMPT = [5, 6, 7, 8, 9, 10]
ATTEMPTS, LENGTH = 4, 20
TEMPERATURE = 0.7


def main(folder: str) -> None:
    """Prints a list of {"tokens", "logprobs"}, one an attempt."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    from vllm import LLM, SamplingParams

    engine = LLM(
        folder,
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=256,
        logprobs_mode="processed_logprobs",
        enable_prefix_caching=False,
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
    attempts = [
        {
            "tokens": list(output.token_ids),
            "logprobs": [
                step[token].logprob
                for token, step in zip(output.token_ids, output.logprobs, strict=True)
            ],
        }
        for output in answer.outputs
    ]
    print(json.dumps(attempts))


if __name__ == "__main__":
    main(sys.argv[1])
