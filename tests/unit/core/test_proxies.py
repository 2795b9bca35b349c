"""Which addresses the environment's proxies lead to."""

from __future__ import annotations

import os
import urllib.request

import pytest
from podium.core.proxies import grpc_asks_proxy, is_direct, keep_direct, needs_environment, proxy_of

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
PROXY = "http://proxy.corp:3128"


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *map(str.lower, VARIABLES), "grpc_proxy", "no_grpc_proxy"):
        # So that what a test sets goes with it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.8.8.8",
        "[::1]",
        "::1",
        "localhost",
        "x.LOCALHOST.",
        "judge",
        "podium-judge.podium.svc",
        "podium-judge.podium.svc.cluster.local",
        "podium-judge.podium.svc.corp.example.",
        "pool-0.pool.podium.svc",
        "pool-0.pool.podium.svc.corp.example",
        "0.0.0.0",
        "[::]",
    ],
)
def test_no_proxy_knows_this_machine_or_the_names_of_a_cluster(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    assert is_direct(host)
    assert proxy_of("http", host) == ""


@pytest.mark.parametrize("host", ["10.1.2.3", "api.openai.com", "x.svc.example.org", "fd00::1"])
def test_what_is_far_goes_by_it(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", PROXY)
    assert not is_direct(host)
    assert proxy_of("http", host) == PROXY
    assert proxy_of("https", host) == ""
    monkeypatch.setenv("all_proxy", "http://all:1")
    assert proxy_of("https", host) == "http://all:1"


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("api.corp.example", "other, .corp.example"),
        ("api.corp.example", "*"),
        ("api.corp.example", "a.b, *"),
        ("api.corp.example", "api.corp.example:8000"),
        ("api.corp.example", "a.b, .corp.example:8000"),
        ("fd00::1", "[fd00::1]"),
        ("fd00::1", "[fd00::1]:8000"),
        ("10.1.2.3", "fe80::/10,10.0.0.0/8"),
        ("fd00::1", "fd00::/8"),
        ("10.1.2.3", "10.1.2.3"),
    ],
)
def test_no_proxy_is_honoured(host: str, no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxy_of("http", host, 8000) == ""
    assert proxy_of("http", "elsewhere.example", 8000) == ("" if "*" in no_proxy else PROXY)


def test_a_port_in_no_proxy_is_that_port_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("NO_PROXY", "judge.corp:8000,judge.corp:443")
    assert proxy_of("http", "judge.corp", 8001) == proxy_of("http", "judge.corp") == PROXY
    assert proxy_of("https", "judge.corp") == ""


def test_macos_has_another_proxy_bypass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "proxy_bypass", lambda host: False)
    monkeypatch.setenv("http_proxy", PROXY)
    assert proxy_of("http", "api.example.org") == PROXY
    assert grpc_asks_proxy("api.example.org")


def test_others_libraries_are_told_in_both_spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("NO_PROXY", "a.example, .b.example")
    monkeypatch.setenv("no_proxy", "c.example")
    keep_direct()
    keep_direct()
    told = "c.example,a.example,.b.example,localhost,127.0.0.1,::1,.svc,.cluster.local"
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == told


@pytest.mark.parametrize("given", [{}, {"http_proxy": PROXY, "NO_PROXY": "a.b, *"}])
def test_nothing_is_told_where_there_is_nothing_to_keep(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    keep_direct()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"http_proxy": PROXY}, True),
        ({"grpc_proxy": PROXY}, True),
        ({"HTTP_PROXY": PROXY}, False),
        ({"http_proxy": PROXY, "no_proxy": ".corp.example"}, False),
        ({"http_proxy": PROXY, "no_grpc_proxy": "10.0.0.0/8"}, True),
        ({}, False),
    ],
)
def test_grpc_knows_some_names_in_lower_case(
    given: dict[str, str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert grpc_asks_proxy("podium.corp.example") is asked
    assert not grpc_asks_proxy("127.0.0.1")


def test_a_client_of_this_machines_api_reads_no_environment() -> None:
    assert not needs_environment("http://127.0.0.1:50083/v1")
    assert needs_environment("https://127.0.0.1:50083/v1")
    assert needs_environment("http://podium.example.org/v1")


@pytest.mark.parametrize("bare", ["proxy.corp:3128", "user:s3cret@proxy.corp:3128", "u:a://b@p:1"])
def test_a_proxy_without_a_scheme_is_one_of_http(
    bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", bare)
    assert proxy_of("http", "api.example.org") == f"http://{bare}"
