"""RULER asks a model of Anthropic's API through LiteLLM's own proxy, which needs nothing of ours.

Real are LiteLLM, the judge and HTTP; the model behind is a double that speaks Anthropic's messages.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from podium.types.v1 import spec_pb2
from support.fake_judge import Answer, FakeJudge, fake_judge, shown
from support.judging import JudgeBench, by_number, group_of, rewards
from support.processes import free_port

LITELLM = os.environ.get("PODIUM_TEST_LITELLM", "")
KEY = "sk-of-the-proxy"
NAME = "anthropic/claude-judge"

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not LITELLM, reason="needs LiteLLM's proxy: set PODIUM_TEST_LITELLM to its `litellm`"
    ),
]


def messages_api(request: dict[str, Any]) -> Answer:
    """An honest judge, as Anthropic's API asks and answers: by the tool that it is bound to."""
    parts = [
        part["text"] if isinstance(part, dict) else part
        for message in request["messages"]
        for part in message["content"]
    ]
    asked = {"messages": [{"role": "user", "content": "".join(parts)}]}
    entries = [
        {"attempt_id": label, "explanation": "so it is", "score": by_number(text)}
        for label, text in shown(asked).items()
    ]
    said = {"scores": entries}
    content: dict[str, Any] = {"type": "text", "text": json.dumps(said)}
    stop = "end_turn"
    if request.get("tools"):
        name = request["tools"][0]["name"]
        content, stop = {"type": "tool_use", "id": "t", "name": name, "input": said}, "tool_use"
    body = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [content],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 300, "output_tokens": 40},
    }
    return Answer(body=json.dumps(body).encode())


@pytest.fixture
def provider() -> Iterator[FakeJudge]:
    with fake_judge() as model:
        model.then(messages_api)
        yield model


@pytest.fixture
def proxy(provider: FakeJudge, tmp_path: Path) -> Iterator[str]:
    """The address of LiteLLM's proxy, once it answers."""
    model = {
        "model": "anthropic/claude-sonnet-4-5",
        "api_base": provider.base_url.removesuffix("/v1"),
        "api_key": "sk-of-the-provider",
    }
    config = tmp_path / "litellm.yaml"
    config.write_text(
        json.dumps(
            {
                "model_list": [{"model_name": NAME, "litellm_params": model}],
                "general_settings": {"master_key": KEY},
            }
        )
    )
    port = free_port()
    log = tmp_path / "log"
    # Its price list and its telemetry are not in reach of a test.
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    command = [LITELLM, "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **quiet}, stdout=output, stderr=output, cwd=tmp_path
        )
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None, f"it ended; its words are in {log}"
            try:
                if httpx.get(f"{address}/health/liveliness", timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.3)
        yield f"{address}/v1"
    finally:
        process.terminate()
        process.wait()


async def test_a_judge_of_another_api_is_asked_through_litellms_proxy(
    provider: FakeJudge, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_JUDGE_KEY_LITELLM", KEY)
    judge = spec_pb2.JudgeModel(base_url=proxy, model=NAME, api_key_env="PODIUM_JUDGE_KEY_LITELLM")
    ruler = spec_pb2.RulerSpec(judges=[judge])
    async with httpx.AsyncClient() as client:
        settings: dict[str, Any] = {"trusted_base_urls": (proxy,), "request_timeout_seconds": 60.0}
        bench = JudgeBench(provider, client, **settings)
        answer = await bench.ask(group_of("it is 3", "it is 9", "it is 5"), ruler)
    assert rewards(answer.group) == pytest.approx([0.3, 0.9, 0.5]), answer.group
    assert answer.usage.calls == 1, "no answer had to be asked for again"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (300, 40)
    assert provider.paths == ["/v1/messages"]
