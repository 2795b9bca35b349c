"""What an inference service says of its queue."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from podium.core.errors import ResourceExhaustedError
from podium.inference.v1 import inference_service_pb2 as pb
from podium_inference.domain.requests import Requests


def test_it_says_what_the_engine_said_and_what_waits_for_weights() -> None:
    requests = Requests(100)
    said = pb.EngineLoad(running=2, waiting=1, places=2, kv_cache_usage=0.5)
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(requests.counted())
        for _ in range(3):
            stack.enter_context(requests.inside())
        expected = pb.EngineLoad(running=2, waiting=1, held=2, places=2, kv_cache_usage=0.5)
        assert requests.load(said) == expected


def test_what_the_engine_said_last_does_not_outlive_its_requests() -> None:
    requests = Requests(100)
    said = pb.EngineLoad(running=2, waiting=5, places=2, kv_cache_usage=0.9)
    with requests.counted(), requests.inside():
        assert requests.load(said) == pb.EngineLoad(running=1, places=2, kv_cache_usage=0.9)
    assert requests.load(said) == pb.EngineLoad(places=2)


def test_whoever_comes_when_all_places_are_taken_is_refused_and_counts_for_nobody() -> None:
    requests = Requests(1)
    with requests.counted():
        with pytest.raises(ResourceExhaustedError) as raised, requests.counted():
            pass
        assert raised.value.reason == "QUEUE_FULL"
        assert requests.load(pb.EngineLoad()).held == 1
    with requests.counted():
        pass
