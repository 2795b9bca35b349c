"""What the engine samples, and how it refuses, over real gRPC and real vLLM."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.types.v1 import policy_pb2, trajectory_pb2
from support.pool import TinyPool, reference_logprobs, request
from support.tiny_model import VOCABULARY

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

PROMPT = list(range(1000, 1040))


async def test_the_engine_says_how_many_wait_for_a_place(merged: TinyPool) -> None:
    async def load() -> pb.EngineLoad:
        return (await merged.stub.GetEngine(pb.GetEngineRequest(), timeout=60)).load

    asked = [merged.generate(PROMPT, seed=seed, max_tokens=80) for seed in range(24)]
    answers = asyncio.gather(*asked)
    while not (full := await load()).waiting or full.running < full.places:
        assert not answers.done()
    assert full.places == 16
    assert full.waiting <= 8
    assert 0 < full.kv_cache_usage <= 1
    await answers
    # The engine counts after it has answered.
    while await load() != pb.EngineLoad(places=16):
        await asyncio.sleep(0.01)


async def test_a_seeded_draw_does_not_depend_on_what_else_runs(merged: TinyPool) -> None:
    alone = [await merged.generate(PROMPT, seed=seed) for seed in range(6)]
    crowd = await asyncio.gather(
        *(merged.generate(PROMPT, seed=seed) for seed in range(6)),
        *(merged.generate(PROMPT[: 5 + i], seed=50 + i, max_tokens=7 + i) for i in range(10)),
    )
    assert [list(g.token_ids) for g in crowd[:6]] == [list(g.token_ids) for g in alone]
    assert len({tuple(g.token_ids) for g in alone}) == 6


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_logprobs_are_those_of_the_sampled_distribution(
    merged: TinyPool, temperature: float, tmp_path: Path
) -> None:
    sampled = await merged.generate(PROMPT, seed=3, max_tokens=40, temperature=temperature)
    assert len(sampled.logprobs) == len(sampled.token_ids) == 40
    expected = reference_logprobs(
        merged.model, None, PROMPT, list(sampled.token_ids), temperature, tmp_path
    )
    assert np.abs(np.array(sampled.logprobs) - expected).mean() < 1e-4


async def test_a_stream_says_what_the_unary_call_says(merged: TinyPool) -> None:
    whole = await merged.generate(PROMPT, seed=4)
    asked = request(PROMPT, seed=4)
    stream = merged.stub.StreamGenerate(
        pb.StreamGenerateRequest(
            policy=asked.policy,
            prompt_token_ids=asked.prompt_token_ids,
            sampling=asked.sampling,
        )
    )
    pieces = [piece.delta async for piece in stream]
    assert len(pieces) > 3
    assert [i for p in pieces for i in p.token_ids] == list(whole.token_ids)
    assert [x for p in pieces for x in p.logprobs] == pytest.approx(list(whole.logprobs), abs=1e-5)
    assert "".join(p.text for p in pieces) == whole.text
    assert pieces[-1].finish_reason == whole.finish_reason
    assert not any(p.finish_reason for p in pieces[:-1])


async def test_why_a_generation_ended(merged: TinyPool) -> None:
    longest = await merged.generate(PROMPT, seed=5)
    assert longest.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH
    word = longest.text[4:9]
    stopped = await merged.generate(PROMPT, seed=5, stop=[word])
    assert stopped.finish_reason == trajectory_pb2.FINISH_REASON_STOP
    assert stopped.text == longest.text[: longest.text.index(word)]
    # What was sampled is kept, stop string and all: the trainer needs every token.
    kept = len(stopped.token_ids)
    assert list(stopped.token_ids) == list(longest.token_ids)[:kept]


async def test_a_cancelled_call_is_aborted_in_the_engine(merged: TinyPool) -> None:
    async with asyncio.timeout(120):
        # Among two thousand tokens of a model that says anything there may be one that ends them.
        seed = 6
        while (running := await _long_call(merged, seed)) is None:
            seed += 1
        call, reading = running
        call.cancel()
        await reading
        while await _running(merged):
            await asyncio.sleep(0.1)


async def _long_call(pool: TinyPool, seed: int) -> tuple[Any, asyncio.Task[None]] | None:
    """A call that the engine is at, and who reads it; None if it ended before that was seen."""
    asked = request(PROMPT, seed=seed, max_tokens=1900)
    call = pool.stub.StreamGenerate(
        pb.StreamGenerateRequest(
            policy=asked.policy,
            prompt_token_ids=asked.prompt_token_ids,
            sampling=asked.sampling,
        )
    )

    async def read() -> None:
        with suppress(asyncio.CancelledError):
            async for _ in call:
                pass

    reading = asyncio.create_task(read())
    while not reading.done():
        # The gauge follows the engine's iterations, and may be one behind the first token.
        if await _running(pool) == 1:
            return call, reading
        await asyncio.sleep(0.02)
    await reading
    return None


async def _running(pool: TinyPool) -> int:
    url = f"http://{pool.stack.metrics_address('inference')}/metrics"
    async with httpx.AsyncClient() as http:
        lines = (await http.get(url)).text.splitlines()
    counts = [line.rpartition(" ")[2] for line in lines if line.startswith("vllm:num_requests_run")]
    return sum(int(float(count)) for count in counts)


async def test_a_repeated_prompt_is_not_computed_again(merged: TinyPool) -> None:
    prompt = list(range(2000, 2100))
    first = await merged.generate(prompt, seed=1)
    again = await merged.generate(prompt, seed=1)
    assert again.cached_prompt_tokens >= 64
    assert list(again.token_ids) == list(first.token_ids)


@pytest.mark.parametrize(
    ("prompt", "sampling", "field"),
    [
        ([], {}, "prompt_token_ids"),
        ([1, VOCABULARY], {}, "prompt_token_ids"),
        ([1, -1], {}, "prompt_token_ids"),
        ([7] * 2048, {}, "prompt_token_ids"),
        ([7], {"temperature": -0.5}, "sampling.temperature"),
        ([7], {"temperature": float("nan")}, "sampling.temperature"),
        ([7], {"max_tokens": 0}, "sampling.max_tokens"),
        ([7], {"json_schema": "{"}, "sampling.json_schema"),
        ([7], {"json_schema": "[]"}, "sampling.json_schema"),
        ([7], {"json_schema": '{"type": "unheard of"}'}, "sampling"),
    ],
)
async def test_a_request_that_cannot_be_sampled_is_refused_by_field(
    merged: TinyPool, prompt: list[int], sampling: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught, rpc_errors("inference"):
        await merged.generate(prompt, **sampling)
    assert any(v.field.startswith(field) for v in caught.value.violations)
    assert (await merged.generate(PROMPT, max_tokens=2)).token_ids


async def test_a_message_past_the_limit_is_refused(merged: TinyPool) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await merged.stub.Chat(
            pb.ChatRequest(
                messages=[
                    trajectory_pb2.Message(role=trajectory_pb2.ROLE_USER, content="x" * (80 << 20))
                ]
            )
        )
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_policy_that_is_not_loaded(merged: TinyPool) -> None:
    for version in (None, 3):
        with pytest.raises(NotFoundError) as caught, rpc_errors("inference"):
            await merged.generate(PROMPT, job="nobody", version=version)
        assert caught.value.reason == "POLICY_NOT_LOADED"


async def test_chat_tells_the_prompt_that_it_rendered(merged: TinyPool) -> None:
    messages = [trajectory_pb2.Message(role=trajectory_pb2.ROLE_USER, content="hello")]
    rendered = await merged.stub.Render(pb.RenderRequest(messages=messages))
    chat = await merged.stub.Chat(
        pb.ChatRequest(messages=messages, sampling=policy_pb2.SamplingParams(max_tokens=4))
    )
    assert list(chat.prompt_token_ids) == list(rendered.token_ids)
    assert chat.message.content == chat.generation.text


async def window_of(pool: TinyPool) -> int:
    return (await pool.stub.GetEngine(pb.GetEngineRequest(), timeout=60)).max_model_len


def message(role: trajectory_pb2.Role.ValueType, content: str) -> trajectory_pb2.Message:
    return trajectory_pb2.Message(role=role, content=content)


async def test_t19_a_turn_in_one_call_is_what_render_and_generate_give(merged: TinyPool) -> None:
    render = pb.RenderRequest(messages=[message(trajectory_pb2.ROLE_USER, "Guess a digit.")])
    first = (await merged.stub.Render(render, timeout=60)).token_ids
    expected = await merged.generate(first, seed=5)
    asked = request([], seed=5)
    asked.render.CopyFrom(render)
    turn = await merged.stub.Generate(asked, timeout=60)
    assert turn.rendered.token_ids == first
    assert turn.rendered.max_model_len == await window_of(merged)
    assert turn.generation.token_ids == expected.token_ids
    assert turn.generation.logprobs == expected.logprobs

    record = [*first, *expected.token_ids]
    render.messages.append(message(trajectory_pb2.ROLE_ASSISTANT, expected.text))
    render.messages.append(message(trajectory_pb2.ROLE_USER, "Higher."))
    render.prefix_messages = 2
    render.prefix_ids[:] = record[-1:]
    second = (await merged.stub.Render(render, timeout=60)).token_ids
    again = request(record, seed=6)
    again.render.CopyFrom(render)
    turn = await merged.stub.Generate(again, timeout=60)
    assert turn.rendered.token_ids == second
    expected = await merged.generate([*record, *second[1:]], seed=6)
    assert turn.generation.token_ids == expected.token_ids


async def test_room_for_the_whole_answer_may_be_demanded(merged: TinyPool) -> None:
    window = await window_of(merged)
    prompt = [1000] * (window - 10)
    asked = request(prompt, seed=1, max_tokens=10)
    asked.require_room = True
    assert (await merged.stub.Generate(asked, timeout=60)).generation.token_ids
    asked.sampling.max_tokens = 11
    with pytest.raises(InvalidArgumentError) as caught, rpc_errors("inference"):
        await merged.stub.Generate(asked, timeout=60)
    assert caught.value.reason == "CONTEXT_LENGTH_EXCEEDED"
    asked.require_room = False
    assert len((await merged.stub.Generate(asked, timeout=60)).generation.token_ids) <= 10
