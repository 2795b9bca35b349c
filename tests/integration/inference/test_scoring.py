"""What a teacher says of somebody else's tokens, by real vLLM, against Transformers and PEFT."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest
from podium.core.errors import InvalidArgumentError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import policy_pb2
from podium_inference.settings import Settings
from support.pool import TinyPool, adapter_files, reference_logprobs
from support.tiny_model import VOCABULARY

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

TOKENS = [int(token) for token in np.random.default_rng(5).integers(17, VOCABULARY, 300)]


async def score(
    pool: TinyPool, tokens: list[int], job: str = "", version: int | None = None
) -> pb.ScoreTokensResponse:
    policy = policy_pb2.PolicyRef(job=job, version=version)
    request = pb.ScoreTokensRequest(policy=policy, token_ids=tokens)
    with rpc_errors("inference"):
        return await pool.stub.ScoreTokens(request, timeout=60)


async def test_log_probs_are_those_of_transformers_again_and_again(
    merged: TinyPool, tmp_path: Path
) -> None:
    expected = reference_logprobs(merged.model, None, TOKENS[:1], TOKENS[1:], 1.0, tmp_path)
    # The second time the prefix cache knows the sequence, and has no log-probs of it.
    for _ in range(2):
        said = await score(merged, TOKENS)
        assert np.abs(np.array(said.logprobs) - expected).max() < 1e-4
    assert (said.policy, said.weights_version) == ("", 0)


async def test_a_teacher_beside_the_student_speaks_with_its_own_adapter(
    shared: TinyPool, tmp_path: Path
) -> None:
    files = adapter_files(shared.model, 3)
    await shared.publish("teacher", 1, files)
    expected = reference_logprobs(shared.model, files, TOKENS[:1], TOKENS[1:], 1.0, tmp_path)
    # Nobody loads it: the request brings it, while the base model is asked too.
    said, base = await asyncio.gather(
        score(shared, TOKENS, "teacher", 1), score(shared, TOKENS[:50])
    )
    assert (said.policy, said.weights_version) == ("teacher", 1)
    assert np.abs(np.array(said.logprobs) - expected).max() < 1e-4
    assert np.abs(np.array(said.logprobs[:49]) - base.logprobs).max() > 0.01


async def test_many_are_scored_in_one_batch_with_those_who_sample(
    shared: TinyPool, tmp_path: Path
) -> None:
    # vLLM by itself dies of it: beside adapters its table has a row for each request alone.
    files = adapter_files(shared.model, 3)
    expected = reference_logprobs(shared.model, files, TOKENS[:1], TOKENS[1:], 1.0, tmp_path)
    sampling = [
        asyncio.create_task(shared.generate(TOKENS[:9], seed=seed, max_tokens=100))
        for seed in range(4)
    ]
    said = await asyncio.gather(
        *(score(shared, TOKENS[: 300 - n], "teacher", 1) for n in range(12)),
        *(score(shared, TOKENS[: 100 + n]) for n in range(4)),
    )
    for n, answer in enumerate(said[:12]):
        assert np.abs(np.array(answer.logprobs) - expected[: 299 - n]).max() < 1e-4
    for answer in said[12:]:
        assert np.abs(np.array(answer.logprobs)[:99] - said[12].logprobs[:99]).max() < 1e-4
    assert all(len(each.token_ids) == 100 for each in await asyncio.gather(*sampling))


async def test_the_base_model_speaks_as_itself_beside_as_many_adapters_as_fit(
    shared: TinyPool, tmp_path: Path
) -> None:
    # vLLM by itself gives it the adapter of the last slot, once there is one.
    expected = reference_logprobs(shared.model, None, TOKENS[:1], TOKENS[1:], 1.0, tmp_path)
    names = [f"beside{n}" for n in range(Settings().max_loras)]
    for n, name in enumerate(names):
        await shared.publish(name, 1, adapter_files(shared.model, 50 + n))
        await score(shared, TOKENS[:20], name, 1)
    _, *said = await asyncio.gather(
        asyncio.gather(
            *(score(shared, TOKENS[: 280 + n], name, 1) for n, name in enumerate(names))
        ),
        *(score(shared, TOKENS[: 260 + n]) for n in range(8)),
    )
    for n, answer in enumerate(said):
        assert np.abs(np.array(answer.logprobs) - expected[: 259 + n]).max() < 1e-4


async def test_a_sequence_that_fills_the_context_is_refused(merged: TinyPool) -> None:
    window = (await merged.stub.GetEngine(pb.GetEngineRequest())).max_model_len
    with pytest.raises(InvalidArgumentError) as raised:
        await score(merged, [7] * window)
    assert raised.value.reason == "CONTEXT_LENGTH_EXCEEDED"
    assert len((await score(merged, [7] * (window - 1))).logprobs) == window - 2


async def test_pools_of_one_tokenizer_say_so(merged: TinyPool, shared: TinyPool) -> None:
    said = {
        (await pool.stub.GetEngine(pb.GetEngineRequest())).vocabulary_digest
        for pool in (merged, shared)
    }
    assert len(said) == 1
    assert said.pop().startswith("sha256:")


async def test_a_pool_says_how_it_renders(merged: TinyPool) -> None:
    said = (await merged.stub.GetEngine(pb.GetEngineRequest())).rendering
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", said.chat_template_digest)
    assert (said.reasoning_parser, said.tool_format) == ("", "text")
