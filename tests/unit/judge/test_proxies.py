"""Judges where the environment names a proxy."""

from __future__ import annotations

import httpx
import pytest
from podium.chat import Transport
from podium.core.errors import FailedPreconditionError
from support.fake_judge import FakeJudge, says

BODY = {"model": "m", "messages": [{"role": "user", "content": "?"}]}


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=Transport("judge"), timeout=30)


async def test_a_judge_elsewhere_is_asked_by_it(
    judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge.then(says("yes"))
    monkeypatch.setenv("HTTP_PROXY", judge.base_url.removeprefix("http://").removesuffix("/v1"))
    async with client() as http:
        await http.post("http://judge.example.invalid/v1/chat/completions", json=BODY)
        assert len(judge.requests) == 1
        monkeypatch.setenv("NO_PROXY", ".invalid")
        with pytest.raises(httpx.ConnectError):
            await http.post("http://judge.example.invalid/v1/chat/completions", json=BODY)


@pytest.mark.parametrize(
    ("proxy", "no_proxy"),
    [("socks://user:secret@127.0.0.1:9", ""), ("http://127.0.0.1:9", "fe80::/10")],
)
async def test_what_httpx_cannot_read_costs_no_judge_on_this_machine(
    proxy: str, no_proxy: str, judge: FakeJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge.then(says("yes"))
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    async with client() as http:
        answer = await http.post(f"{judge.base_url}/chat/completions", json=BODY)
        assert answer.status_code == 200
        with pytest.raises((FailedPreconditionError, httpx.ProxyError)) as caught:
            await http.post("https://judge.example.invalid/v1/chat/completions", json=BODY)
    assert "proxy" in str(caught.value)
    assert "secret" not in str(caught.value)
