"""The command line and the SDK from outside, knowing nothing but the release's name.

Runs before test_e2e_training.py, which uninstalls; it leaves no job and no change behind.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from podium.core.errors import DeadlineExceededError, UnavailableError
from podium.sdk import AsyncClient
from podium.sdk.connection import contexts
from support.cluster_user import of_release, typed
from support.kubernetes_cluster import Cluster, Installation

pytestmark = pytest.mark.timeout(900)

WITHIN = 300


def test_an_installation_starts_each_container_once(installation: Installation) -> None:
    """Though the database starts with those who need it."""
    found = json.loads(installation.cluster.kubectl("get", "pods", "--output", "json"))
    restarts = {
        f"{pod['metadata']['name']}/{container['name']}": container["restartCount"]
        for pod in found["items"]
        for container in pod["status"]["containerStatuses"]
    }
    assert restarts
    assert not any(restarts.values()), restarts


def test_install_tells_what_the_cluster_has(
    installation: Installation, outside: dict[str, str]
) -> None:
    arguments = ("install", "--namespace", installation.cluster.namespace, "-o", "json")
    done = typed(outside, *arguments)
    told: dict[str, Any] = json.loads(done.stdout)
    found = {each["name"]: each for each in told["findings"]}
    # The cluster of CI is older than the chart allows and makes no volumes.
    assert done.returncode == (0 if told["ready"] else 1), done.stderr
    version = json.loads(installation.cluster.kubectl("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] in found["kubernetes"]["detail"]
    for name in ("rights", "namespace", "nodes", "port-forward"):
        assert found[name]["status"] == "ok", found[name]
    assert found["release"]["status"] == "warn"
    assert told["command"][:3] == ["helm", "upgrade", "podium"]


def test_a_wrong_token_is_refused(installation: Installation, outside: dict[str, str]) -> None:
    where = of_release(installation)
    done = typed(outside, "login", "wrong", *where, "--token-stdin", text_in="not-the-token")
    assert done.returncode == 4, done.stderr
    assert "wrong" not in typed(outside, "context", "list", "-o", "name").stdout


def test_a_login_without_a_certificate_is_told_that_it_needs_one(
    installation: Installation, outside: dict[str, str]
) -> None:
    done = typed(outside, "login", "plain", *of_release(installation, certificate=False))
    assert done.returncode == 3, done.stderr
    assert "asks for TLS, and no certificate is given" in done.stderr
    assert "plain" not in typed(outside, "context", "list", "-o", "name").stdout


def test_a_release_that_is_not_there_is_named(outside: dict[str, str], cluster: Cluster) -> None:
    done = typed(outside, "login", "no", "--release", "nope", "--namespace", cluster.namespace)
    assert done.returncode == 5, done.stderr
    assert f"there is no release nope in namespace {cluster.namespace}" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("job", "list"),
        ("checkpoint", "list"),
        ("env", "list"),
        ("chat", "--once", "Say hello.", "--max-tokens", "4"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_every_service_is_reached_through_the_api_server(
    logged_in: dict[str, str], command: tuple[str, ...]
) -> None:
    done = typed(logged_in, *command)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_client_finds_its_way_again_when_the_pod_is_another(
    installation: Installation, logged_in: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contexts.FOLDER, logged_in[contexts.FOLDER])
    cluster = installation.cluster
    async with AsyncClient(context="e2e") as client:
        before = [job.id async for job in client.jobs.list()]
        await asyncio.to_thread(cluster.kubectl, "delete", cluster.pod_of("controller"))
        end = time.monotonic() + WITHIN
        after = None
        while after is None:
            try:
                after = [job.id async for job in client.jobs.list()]
            except (UnavailableError, DeadlineExceededError):
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(1)
    assert after == before


async def test_the_openai_api_is_reached_with_the_release_s_token(
    installation: Installation, logged_in: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contexts.FOLDER, logged_in[contexts.FOLDER])
    key = {"Authorization": f"Bearer {installation.token}"}
    async with AsyncClient(context="e2e") as client:
        engine = await client.policies.engine()
        url = f"http://{await client.openai_address(engine.http_port)}/v1/models"
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            assert (await http.get(url)).status_code == 401
            assert (await http.get(url, headers=key)).status_code == 200


def test_nothing_of_kubectl_is_left(logged_in: dict[str, str]) -> None:
    """Of this user's, that is: it would hold this folder in its environment."""
    mark = f"{contexts.FOLDER}={logged_in[contexts.FOLDER]}".encode()
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                left.append((process / "cmdline").read_text())
        except OSError:
            continue
    assert [line for line in left if "port-forward" in line] == []
