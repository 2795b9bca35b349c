"""OpenAI's client, unchanged, talks to a trained policy by name."""

from __future__ import annotations

import grpc
import openai
import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.local.launcher import Launcher
from support.jobs import create, small_spec, wait_until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(600),
]


async def test_chat_and_stream_with_job_at_version(real_stack: Launcher) -> None:
    async with grpc.aio.insecure_channel(real_stack.address("controller")) as channel:
        stub = jobs_grpc.JobServiceStub(channel)
        job_id = await create(stub, small_spec(1), "openai-client")
        await wait_until(
            stub, job_id, lambda job: job.state == jobs.JOB_STATE_SUCCEEDED, within=300
        )
    model = f"{job_id}@1"
    async with openai.AsyncOpenAI(base_url=real_stack.openai_base_url, api_key="none") as client:
        assert model in [m.id async for m in client.models.list()]
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        whole = await client.chat.completions.create(
            model=model, messages=messages, max_tokens=24, temperature=0
        )
        assert "Paris" in whole.choices[0].message.content
        stream = await client.chat.completions.create(
            model=model, messages=messages, max_tokens=24, temperature=0, stream=True
        )
        pieces = [c.choices[0].delta.content or "" async for c in stream if c.choices]
        assert len(pieces) > 3
        assert "".join(pieces) == whole.choices[0].message.content
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model=f"{job_id}@99", messages=messages)
