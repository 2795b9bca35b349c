"""A real engine whose weights change while it samples: each token is of the version it tells."""

from __future__ import annotations

import asyncio
import functools
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from podium.core.errors import AlreadyExistsError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from support.pool import TinyPool, adapter_files, logprobs_by, reference_model, request
from support.waiting import eventually
from tokenizers import Tokenizer

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

PROMPT = list(range(3000, 3040))
BETWEEN = 10
"""Tokens, at least, that a request samples between two exchanges."""
_MOST_TIMES = 4


class EndedTooEarlyError(AssertionError):
    """The weights came when nothing sampled any more: on a busy machine they may take long."""


@pytest.fixture
def times() -> list[int]:
    """By how much requests are longer than an idle machine needs them; see `tried_again`."""
    return [1]


def tried_again(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Runs a test anew, from loading version 1 on, while its weights came too late to tell.

    The first two times its requests are twice as long as before.
    """

    @functools.wraps(test)
    async def run(*, times: list[int], **fixtures: Any) -> None:
        for _ in range(5):
            try:
                return await test(times=times, **fixtures)
            except EndedTooEarlyError as error:
                late = error
                # No request may be longer than the model's context.
                times[0] = min(2 * times[0], _MOST_TIMES)
        raise late

    return run


class Clock:
    """A request that is at it for as long as the engine samples, and how far it is."""

    def __init__(self, pool: TinyPool, job: str) -> None:
        asked = request(PROMPT[:7], job, seed=3, max_tokens=1800)
        self._call = pool.stub.StreamGenerate(
            pb.StreamGenerateRequest(
                policy=asked.policy,
                prompt_token_ids=asked.prompt_token_ids,
                sampling=asked.sampling,
            )
        )
        self.pieces: list[pb.Generation] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for response in self._call:
            self.pieces.append(response.delta)

    async def ticks(self, count: int) -> None:
        """Returns when it has sampled so many tokens more."""
        enough = len(self.pieces) + count
        await eventually(lambda: len(self.pieces) >= enough or self.reading.done())
        assert not self.reading.done(), "the clock ended: another seed"

    def stop(self) -> None:
        """It is not needed any more."""
        self._call.cancel()


async def published(pool: TinyPool, job: str, seeds: Sequence[int]) -> list[dict[str, bytes]]:
    """Versions from 1 on, each the adapter of its seed."""
    files = [adapter_files(pool.model, seed) for seed in seeds]
    for version, content in enumerate(files, start=1):
        # It is there where the test is run anew.
        with suppress(AlreadyExistsError):
            await pool.publish(job, version, content)
    return files


async def all_run(
    pool: TinyPool, job: str, tasks: Sequence[asyncio.Future[Any]], *, others: int = 0
) -> None:
    """Returns when those of the job's requests that have no answer yet are at it, and others."""
    async with asyncio.timeout(120):
        while (await running(pool, job)) != others + sum(not task.done() for task in tasks):
            await asyncio.sleep(0.02)


async def running(pool: TinyPool, job: str) -> int:
    (listed,) = (await pool.stub.ListPolicies(pb.ListPoliciesRequest(job=job))).policies
    return listed.running_requests


@asynccontextmanager
async def unloaded_afterwards(pool: TinyPool, job: str) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await pool.stub.UnloadPolicy(pb.UnloadPolicyRequest(job=job))


async def while_swapping(
    pool: TinyPool,
    job: str,
    versions: Iterable[int],
    asked: Sequence[Any],
    *,
    at_least: int = 1,
) -> list[Any]:
    """The answers to what is asked under version 1, while these versions come in.

    Each version comes while so many of them sample, or it came too late.
    """
    clock = Clock(pool, job)
    tasks = [asyncio.ensure_future(each) for each in asked]
    await all_run(pool, job, tasks, others=1)
    for version in versions:
        await clock.ticks(BETWEEN)
        loaded = await pool.load(job, version, in_flight=True)
        assert not loaded.already_loaded
        print(
            f"{loaded.policy.running_requests} go on after {loaded.pause_seconds:.2f} s,"
            f" {len(clock.pieces)} tokens"
        )
        # The clock is one more.
        if loaded.policy.running_requests <= at_least:
            for task in tasks:
                task.cancel()
            clock.stop()
            await asyncio.wait([clock.reading, *tasks])
            raise EndedTooEarlyError("nothing was at it any more")
    answers = await asyncio.gather(*tasks)
    clock.stop()
    await asyncio.wait([clock.reading])
    return answers


def runs(generation: pb.Generation) -> list[tuple[int, int]]:
    found = [(run.tokens, run.weights_version) for run in generation.versions]
    return found or [(len(generation.token_ids), generation.weights_version)]


def versions_by_token(generation: pb.Generation) -> list[int]:
    return [version for tokens, version in runs(generation) for _ in range(tokens)]


@tried_again
async def test_every_token_rescored_under_its_stamped_version_is_what_was_told(
    merged: TinyPool, times: list[int], tmp_path: Path
) -> None:
    job = "flight"
    files = await published(merged, job, (51, 52, 51, 52))
    await merged.load(job, 1)
    how: list[tuple[list[int], dict[str, Any]]] = [
        (PROMPT, {"seed": 1, "max_tokens": 200 * times[0]}),
        (PROMPT, {"seed": 2, "max_tokens": 200 * times[0]}),
        (PROMPT[5:], {"max_tokens": 160 * times[0]}),
        (PROMPT[5:], {"seed": 4, "max_tokens": 160 * times[0], "temperature": 0.7}),
        (PROMPT[3:9], {"seed": 5, "max_tokens": 150 * times[0], "temperature": 1.3}),
        (PROMPT[3:9], {"max_tokens": 4}),
    ]
    async with unloaded_afterwards(merged, job):
        asked = [merged.generate(prompt, job=job, **sampling) for prompt, sampling in how]
        answers = await while_swapping(merged, job, (2, 3, 4), asked)
    assert max(len(answer.versions) for answer in answers) == 4
    assert sum(len(answer.versions) > 1 for answer in answers) >= 3
    models = {
        version: reference_model(merged.model, content, tmp_path / str(version))
        for version, content in enumerate(files, start=1)
    }
    off, apart = [], []
    for (prompt, sampling), answer in zip(how, answers, strict=True):
        ids, told = list(answer.token_ids), np.array(answer.logprobs)
        temperature = sampling.get("temperature", 1.0)
        stamped = versions_by_token(answer)
        print(runs(answer))
        assert len(stamped) == len(ids) == len(told)
        assert answer.weights_version == min(stamped) == stamped[0] == 1
        by_version = {
            version: np.array(logprobs_by(models[version], prompt, ids, temperature))
            for version in (1, 2)
        }
        # Versions 1 and 3 are of the same files, as are 2 and 4.
        mine = np.array([by_version[2 - v % 2][at] for at, v in enumerate(stamped)])
        other = np.array([by_version[1 + v % 2][at] for at, v in enumerate(stamped)])
        off += list(np.abs(told - mine))
        apart += list(np.abs(told - other))
    print(f"{len(off)} tokens: mean |Δ| {np.mean(off):.2e}, greatest {np.max(off):.2e}")
    assert np.mean(off) <= 1e-4
    assert np.max(off) <= 1e-2
    assert np.mean(apart) > 0.1, "the versions are so alike that a wrong stamp is not seen"


def kinds(times: int) -> dict[str, dict[str, Any]]:
    """Requests whose state is more than their tokens."""
    items = 8 * times
    schema = {
        "type": "array",
        "minItems": items,
        "maxItems": items,
        "items": {"type": "integer"},
    }
    return {
        "seeded": {"seed": 21, "max_tokens": 150 * times},
        "greedy": {"temperature": 0, "max_tokens": 145 * times},
        "of a nucleus": {"seed": 22, "top_p": 0.9, "top_k": 50, "max_tokens": 140 * times},
        "stopped": {"seed": 23, "max_tokens": 160 * times},
        "of a grammar": {"seed": 24, "max_tokens": 400 * times, "json_schema": json.dumps(schema)},
    }


@tried_again
async def test_nothing_but_the_versions_tells_that_weights_came_in_between(
    merged: TinyPool, times: list[int]
) -> None:
    """Versions of the same files: seed, stop strings, grammar and limits go on where they were."""
    job = "seam"
    await published(merged, job, (61, 61, 61))
    await merged.load(job, 1)
    how = kinds(times[0])
    async with unloaded_afterwards(merged, job):
        asked = [merged.generate(PROMPT, job=job, **sampling) for sampling in how.values()]
        before = dict(zip(how, await asyncio.gather(*asked), strict=True))
        # Long enough that it stands nowhere before.
        stop = before["stopped"].text[-60:-30]
        how["stopped"]["stop"] = [stop]
        asked = [merged.generate(PROMPT, job=job, **sampling) for sampling in how.values()]
        answers = await while_swapping(merged, job, (2, 3), asked, at_least=len(asked))
    after = dict(zip(how, answers, strict=True))
    whole = before["stopped"]
    # It would have gone on, and was stopped at once.
    whole.text = whole.text[: whole.text.index(stop)]
    whole.finish_reason = trajectory_pb2.FINISH_REASON_STOP
    decode = Tokenizer.from_file(str(merged.model / "tokenizer.json")).decode
    kept = next(n for n in count() if stop in decode(whole.token_ids[:n]))
    del whole.token_ids[kept:], whole.logprobs[kept:]
    for name, found in after.items():
        expected = before[name]
        print(name, runs(found))
        assert len(found.versions) == 3, name
        assert list(found.token_ids) == list(expected.token_ids), name
        assert found.text == expected.text, name
        assert found.finish_reason == expected.finish_reason, name
        assert np.allclose(found.logprobs, expected.logprobs, atol=1e-3), name
        assert sum(tokens for tokens, _ in runs(found)) == len(found.token_ids), name
    length = trajectory_pb2.FINISH_REASON_LENGTH
    assert [answer.finish_reason for answer in answers[:3]] == [length] * 3


@tried_again
async def test_openai_clients_and_their_captures_go_on_choice_by_choice(
    merged: TinyPool, times: list[int], tmp_path: Path
) -> None:
    job, key = "calls", f"podium-rollout-{uuid.uuid4().hex}"
    tokens = 120 * times[0]
    files = await published(merged, job, (71, 72))
    await merged.load(job, 1)
    options: dict[str, Any] = {
        "model": job,
        "prompt": PROMPT,
        "max_tokens": tokens,
        "seed": 7,
        "extra_body": {"ignore_eos": True},
    }
    url = merged.stack.openai_base_url
    async with (
        unloaded_afterwards(merged, job),
        openai.AsyncOpenAI(base_url=url, api_key=key) as client,
    ):

        async def whole() -> Any:
            return await client.completions.create(n=2, logprobs=1, **options)

        async def streamed() -> str:
            chunks = await client.completions.create(stream=True, **options)
            return "".join([chunk.choices[0].text async for chunk in chunks])

        async def named() -> Any:
            return await client.completions.create(
                **{**options, "model": f"{job}@1", "max_tokens": tokens // 3}
            )

        # What names its version is of that alone: the exchange comes after it.
        answer, text, _ = await while_swapping(merged, job, (2,), [whole(), streamed(), named()])
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(PROMPT), 2 * tokens)
    assert [len(choice.logprobs.tokens) for choice in answer.choices] == [tokens, tokens]
    stream = merged.stub.TakeCapture(pb.TakeCaptureRequest(key=key), timeout=60)
    calls = [response.call async for response in stream]
    seen = sorted(len(call.generation.versions) for call in calls)
    assert seen == [0, 2, 2, 2]
    models = [
        reference_model(merged.model, content, tmp_path / str(version))
        for version, content in enumerate(files)
    ]
    off = []
    for call in calls:
        made = call.generation
        ids = list(made.token_ids)
        scores = [np.array(logprobs_by(each, PROMPT, ids, 1.0)) for each in models]
        stamped = versions_by_token(made)
        off += [
            abs(told - scores[version - 1][at])
            for at, (told, version) in enumerate(zip(made.logprobs, stamped, strict=True))
        ]
    print(f"{len(off)} captured tokens: mean |Δ| {np.mean(off):.2e}")
    assert np.mean(off) <= 1e-4
    assert text in {call.generation.text for call in calls}


async def test_a_client_that_goes_away_while_weights_come_in_leaves_nothing_behind(
    merged: TinyPool,
) -> None:
    job = "gone"
    await published(merged, job, (81, 82))
    await merged.load(job, 1)
    async with unloaded_afterwards(merged, job):
        clock = Clock(merged, job)
        await clock.ticks(BETWEEN)
        load = asyncio.create_task(merged.load(job, 2, in_flight=True))
        clock.stop()
        await asyncio.wait([clock.reading])
        await load
        await all_run(merged, job, [])
        assert (await merged.generate(PROMPT, job=job)).weights_version == 2
