"""Calls of the OpenAI API while weights change: which move, and what is captured of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from podium.core.errors import NotFoundError
from podium.inference.v1 import inference_service_pb2 as pb
from podium_inference.adapters.http.capture import CapturedRequest, in_request
from podium_inference.adapters.http.named_policies import NamedPolicies
from podium_inference.adapters.http.openai_api import GatedClient
from podium_inference.domain.captures import Captures
from support.sampling_params import Params
from support.stepped_engine import JOB, SteppedPool, runs, settled

KEY = "podium-rollout-r"
BASE = "base-model"


class Llm:
    """vLLM's client, whose one output a request comes when a test says so."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()
        self.spans: list[tuple[str, int, int]] = []
        self.begun = 0

    async def generate(
        self, prompt: Any, params: Any, request_id: str, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        self.begun += 1
        await self.ends.wait()
        spans = [SimpleNamespace(version=v, start=s, end=e) for v, s, e in self.spans]
        choice = SimpleNamespace(
            index=0,
            token_ids=[7, 8, 9],
            logprobs=None,
            text="",
            finish_reason="stop",
            weight_versions=spans,
        )
        yield SimpleNamespace(request_id="r", prompt_token_ids=[1], outputs=[choice])


class Api:
    """What a request to vLLM's server goes through, without the server."""

    def __init__(self, pool: SteppedPool) -> None:
        async def announce(key: str) -> None:
            return None

        self.pool, self.llm, self.captures = pool, Llm(), Captures(10, 1000, 60.0)
        engine: Any = SimpleNamespace(llm=self.llm)
        self.client = GatedClient(engine, pool.pool, self.captures, announce, "hermes", "")
        self.app = NamedPolicies(self._serve, pool.pool.want, BASE)
        self.params = Params(prompt_logprobs=None)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        with in_request(CapturedRequest(KEY, body=bytearray(b"{}"))):
            async for _ in self.client.generate({}, self.params, "r"):
                pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def asking(self, **body: Any) -> asyncio.Task[httpx.Response]:
        """A request, begun."""
        http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://pool",  # type: ignore[arg-type]
        )
        task = asyncio.create_task(http.post("/v1/completions", content=json.dumps(body)))
        await settled()
        return task

    def captured(self) -> list[pb.Generation]:
        """What was kept."""
        calls = [pb.CapturedCall.FromString(each) for each in self.captures.take(KEY)]
        return [call.generation for call in calls]


@pytest.fixture
async def api() -> Api:
    pool = SteppedPool()
    await pool.load(1)
    return Api(pool)


@pytest.mark.parametrize("named", [{"model": JOB}, {}])
async def test_a_call_that_names_no_version_goes_on_and_its_capture_says_so(
    api: Api, named: dict[str, str]
) -> None:
    call = await api.asking(**named)
    await api.pool.load(2)
    api.llm.spans = [("1", 0, 2), ("2", 2, 3)]
    api.llm.ends.set()
    assert (await call).status_code == 200
    (made,) = api.captured()
    assert (runs(made), made.weights_version, made.policy) == ([(2, 1), (1, 2)], 1, JOB)


@pytest.mark.parametrize(
    ("model", "changes"),
    [(f"{JOB}@1", {}), (JOB, {"prompt_logprobs": 1})],
    ids=["its version is named", "what the prompt's tokens are told of"],
)
async def test_what_must_be_of_one_version_ends_first(
    api: Api, model: str, changes: dict[str, Any]
) -> None:
    api.params = replace(api.params, **changes)
    call = await api.asking(model=model)
    load = api.pool.loading(2)
    await settled()
    assert not load.done()
    api.llm.spans = [("1", 0, 3)]
    api.llm.ends.set()
    await call
    await load
    (made,) = api.captured()
    assert (runs(made), made.weights_version) == ([], 1)


async def test_a_call_that_comes_during_an_exchange_is_of_the_new_version(api: Api) -> None:
    api.pool.engine.merging = asyncio.Event()
    load = api.pool.loading(2)
    await settled()
    calls = [await api.asking(**body) for body in ({"model": JOB}, {})]
    assert api.llm.begun == 0
    api.pool.engine.merging.set()
    await load
    api.llm.spans = [("2", 0, 3)]
    api.llm.ends.set()
    assert [(await call).status_code for call in calls] == [200, 200]
    assert [made.weights_version for made in api.captured()] == [2, 2]


async def test_who_names_the_base_model_is_not_answered_by_a_job(api: Api) -> None:
    call = await api.asking(model=BASE)
    with pytest.raises(NotFoundError, match="another policy is merged"):
        await call
