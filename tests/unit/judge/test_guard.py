"""What a job can make the judge service ask, and what it is told of it."""

from __future__ import annotations

import ipaddress

import httpx
import pytest
from podium.chat import guard
from podium.core.contract.judging import is_judge_address
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium_judge.adapters.judge_model import OpenAIJudge, RequestRefusedError
from podium_judge.domain.judge_config import CallLimits, Endpoint, JudgeConfig
from podium_judge.domain.scores import Usage
from support.fake_judge import fails, fake_judge

ONCE = CallLimits(attempts=1, timeout_seconds=10)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:50083/v1",
        "https://api.example.com/v1/",
        "https://api.example.com/v1beta/openai",
        "http://[::1]:8000/v1",
        "http://judge",
    ],
)
def test_an_address_is_scheme_host_port_and_path(url: str) -> None:
    assert is_judge_address(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://host/any/path?x=",
        "http://host/v1?",
        "http://host/v1#",
        "http://host/v1#x",
        "http://user@host/v1",
        "http://:password@host/v1",
        "http://host/../admin",
        "http://host/a/./b",
        "http://host/%2e%2e/admin",
        "http://host/v1;x=y",
        "http://host\\@other/v1",
        "http://host/v1\r\nx: y",
        "http://host:99999/v1",
        "http://host:0/v1",
        "file:///etc/passwd",
        "unix:/run/docker.sock",
        "http://",
    ],
)
def test_nothing_else_is(url: str) -> None:
    assert not is_judge_address(url)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "2852039166",
        "0xA9FEA9FE",
        "[::ffff:169.254.169.254]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "100.100.100.200",
    ],
)
async def test_metadata_addresses_are_refused_before_a_request_is_sent(host: str) -> None:
    refuse = guard((), "judge")
    async with httpx.AsyncClient(event_hooks={"request": [refuse]}) as client:
        with pytest.raises(FailedPreconditionError) as caught:
            await client.get(f"http://{host}/v1/models")
    assert caught.value.reason == "JUDGE_MISCONFIGURED"
    assert "169.254" not in caught.value.message


async def test_a_setting_allows_them_and_loopback_needs_none() -> None:
    request = httpx.Request("GET", "http://169.254.10.7/v1/models")
    await guard((ipaddress.ip_network("169.254.10.0/24"),), "judge")(request)
    with pytest.raises(FailedPreconditionError):
        await guard((ipaddress.ip_network("169.254.11.0/24"),), "judge")(request)
    for host in ("127.0.0.1", "localhost", "[::1]", "10.1.2.3"):
        await guard((), "judge")(httpx.Request("GET", f"http://{host}/v1/models"))


async def told(url: str, trusted: bool) -> str:
    async with httpx.AsyncClient() as client:
        config = JudgeConfig(Endpoint(url, "m"), trusted=trusted)
        judge = OpenAIJudge(client, config, ONCE)
        with pytest.raises((UnavailableError, FailedPreconditionError, RequestRefusedError)) as e:
            await judge.ask([{"role": "user", "content": "?"}], {}, Usage(), 0)
    return str(e.value)


async def test_a_job_does_not_learn_what_listens_at_an_address_that_it_chose() -> None:
    words = set()
    with fake_judge() as model:
        url = model.base_url
        for behaviour in (fails(403), fails(404), fails(500), fails(400)):
            model.script = [behaviour]
            words.add(await told(url, trusted=False))
    # Its port is closed by now.
    words.add(await told(url, trusted=False))
    assert len(words) == 1
    (word,) = words
    assert "check its address" in word
    assert not [each for each in ("403", "404", "500", "Connect") if each in word]


async def test_the_operators_own_judge_is_told_of_in_full() -> None:
    with fake_judge() as model:
        model.script = [fails(403)]
        assert "HTTP 403" in await told(model.base_url, trusted=True)
