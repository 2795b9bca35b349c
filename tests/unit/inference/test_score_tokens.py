"""ScoreTokens over gRPC: what a teacher is asked, what it says, and how it refuses."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
)
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc import Server, ServerSettings, connect, rpc_errors
from podium.types.v1 import policy_pb2
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.token_scores import LEAST_LOGPROB, vocabulary_digest
from podium_inference.servicer import InferenceServicer


class Engine:
    """Gives the nth token a log-prob of -n, unless it is told what to say."""

    max_model_len = 8
    vocab_size = 10

    def __init__(self) -> None:
        self.answer: list[float] | None = None
        self.asked: list[list[int]] = []

    async def score(
        self, token_ids: Sequence[int], request_id: str, adapter: object | None
    ) -> list[float]:
        self.asked.append(list(token_ids))
        return self.answer or [-float(n) for n in range(1, len(token_ids))]


@asynccontextmanager
async def teacher() -> AsyncIterator[tuple[Engine, pb_grpc.InferenceServiceAsyncStub]]:
    engine: Any = Engine()
    nobody: Any = None
    pool = PolicyPool(engine, nobody, nobody, merged=True, max_requests=4, load_timeout_s=1)
    pool._demand.forbid("gone", None)
    server = Server("inference", ServerSettings())
    servicer = InferenceServicer(
        engine, pool, nobody, nobody, nobody, nobody, pb.GetEngineResponse()
    )
    server.add(
        pb_grpc.add_InferenceServiceServicer_to_server,
        servicer,
        "podium.inference.v1.InferenceService",
    )
    await server.start()
    channel = connect(f"127.0.0.1:{server.port}")
    try:
        yield engine, pb_grpc.InferenceServiceStub(channel)
    finally:
        await channel.close()
        await server.stop(0)


async def refusal(stub: Any, tokens: Sequence[int], job: str = "") -> PodiumError:
    request = pb.ScoreTokensRequest(token_ids=tokens, policy=policy_pb2.PolicyRef(job=job))
    with pytest.raises(PodiumError) as raised, rpc_errors("inference"):
        await stub.ScoreTokens(request)
    return raised.value


async def test_each_token_but_the_first_has_a_log_prob_of_the_policy_that_is_named() -> None:
    async with teacher() as (engine, stub):
        said = await stub.ScoreTokens(pb.ScoreTokensRequest(token_ids=[3, 1, 4, 1]))
        assert list(said.logprobs) == [-1, -2, -3]
        assert (said.policy, said.weights_version) == ("", 0)
        assert engine.asked == [[3, 1, 4, 1]]


async def test_what_a_policy_rules_out_has_a_number_that_can_be_reckoned_with() -> None:
    async with teacher() as (engine, stub):
        engine.answer = [-math.inf, -0.5]
        said = await stub.ScoreTokens(pb.ScoreTokensRequest(token_ids=[3, 1, 4]))
        assert list(said.logprobs) == [LEAST_LOGPROB, -0.5]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
async def test_weights_that_give_no_numbers_are_refused_by_name(broken: float) -> None:
    async with teacher() as (engine, stub):
        engine.answer = [-0.5, broken]
        error = await refusal(stub, [3, 1, 4])
        assert isinstance(error, FailedPreconditionError)
        assert error.reason == "LOGPROBS_NOT_FINITE"
        assert "token 2 of the sequence" in error.message


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([], "token_ids"),
        ([1], "got 1 token; allowed are 2 or more"),
        ([1, 10], "got id 10; allowed are 0 to 9"),
        ([1, -1], "got id -1; allowed are 0 to 9"),
        (
            [1] * 8,
            "got 8 tokens; allowed are fewer than the context window's 8, which"
            " PODIUM_INFERENCE_MAX_MODEL_LEN sets (podium up --max-model-len)",
        ),
    ],
)
async def test_a_sequence_that_cannot_be_read_is_refused_with_what_came(
    tokens: list[int], told: str
) -> None:
    async with teacher() as (engine, stub):
        error = await refusal(stub, tokens)
        assert isinstance(error, InvalidArgumentError)
        assert told in str(error)
        assert (error.reason == "CONTEXT_LENGTH_EXCEEDED") is (len(tokens) == 8)
        assert not engine.asked


async def test_a_policy_that_was_taken_away_is_not_loaded() -> None:
    async with teacher() as (_, stub):
        error = await refusal(stub, [1, 2], job="gone")
        assert isinstance(error, NotFoundError)
        assert error.reason == "POLICY_NOT_LOADED"


def test_a_vocabulary_is_its_words_and_their_ids_whatever_their_order() -> None:
    one = vocabulary_digest({"a": 0, "b": 1, "\udce2": 2})
    assert one == vocabulary_digest({"\udce2": 2, "b": 1, "a": 0})
    others = [{"a": 1, "b": 0, "\udce2": 2}, {"a": 0, "b": 1}, {"a": 0, "b": 1, "1 1 x": 2}]
    assert len({one, *map(vocabulary_digest, others)}) == 4
