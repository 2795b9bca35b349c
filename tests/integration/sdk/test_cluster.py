"""A release of the chart that has no address: a real kubectl's double, real gRPC through it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from podium.kit.rpc import retry_unavailable
from podium.sdk import Addresses, AsyncClient, Client
from podium.sdk.connection import contexts
from podium.sdk.connection.contexts import Context, Contexts, Kubernetes
from podium.sdk.connection.kubectl import Kubectl
from support import job_records
from support.fake_job_service import watched_job
from support.fake_kubectl import FakeKubectl
from support.fake_podium import FakePodium, fake_podium
from support.process_tree import alive, gone

TOKEN = "the-release's"


@pytest.fixture
async def fake(kubectl: FakeKubectl, tmp_path: Path) -> AsyncIterator[FakePodium]:
    """What the release's services do, behind a token; one context leads there."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\nanother\n")
    async with fake_podium(auth_tokens_file=tokens) as running:
        kubectl.play_release(running.address, TOKEN)
        use(Kubernetes(context=kubectl.context))
        yield running


def use(kubernetes: Kubernetes, **more: object) -> None:
    context = Context(kubernetes=kubernetes).model_copy(update=more)
    contexts.save(Contexts(current="cluster", contexts={"cluster": context}))


async def loaded(client: AsyncClient) -> int:
    """How many policies the pool has: a call to the inference service."""
    return len([policy async for policy in client.policies.list()])


async def test_jobs_are_listed_with_the_release_s_token(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    fake.jobs.known["w"] = job_records.job("w", 3, 3)
    async with AsyncClient() as client:
        assert kubectl.calls == [], "nothing is asked before it is needed"
        assert [job.id async for job in client.jobs.list()] == ["w"]
        assert (await client.jobs.get("w")).id == "w"
        asked = [call[2:] for call in kubectl.calls]
        assert [call[0] for call in asked] == ["get", "get", "port-forward"], "each once"
        assert asked[-1][2] == "service/podium-controller"
        (pid,) = kubectl.pids("port-forward")
        assert alive(pid)
    await gone([pid], within=60)


async def test_each_service_has_a_way_of_its_own_once_it_is_used(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    async with AsyncClient() as client:
        await client.environments.list()
        await loaded(client)
        await loaded(client)
    targets = [call[-2:] for call in kubectl.calls if "port-forward" in call]
    assert [(target, ports.partition(":")[2]) for target, ports in targets] == [
        ("service/podium-rollout", "50054"),
        ("service/podium-inference-default", "50053"),
    ]


async def test_two_first_calls_at_once_start_one_kubectl(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    async with AsyncClient() as client:
        await asyncio.gather(*(loaded(client) for _ in range(4)))
    assert len(kubectl.pids("port-forward")) == 1


async def test_a_stream_comes_through(fake: FakePodium) -> None:
    job = job_records.job("w", 3, 3)
    fake.jobs.known["w"] = job
    fake.jobs.updates = watched_job(job)
    async with AsyncClient() as client:
        seen = [update async for update in client.jobs.watch("w")]
    assert seen


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stream_and_a_call_say_why_there_is_no_way(
    fake: FakePodium, kubectl: FakeKubectl, stream: bool
) -> None:
    refusal = 'Error from server (Forbidden): pods "podium-controller-0" is forbidden'
    kubectl.refusals["port-forward"] = refusal
    kubectl.write()
    async with AsyncClient() as client:
        call = anext(client.jobs.watch("w")) if stream else client.jobs.get("w")
        with pytest.raises(PermissionDeniedError) as refused:
            await call
    assert refused.value.message == f"kubectl: {refusal}"


async def test_kubectl_that_ends_is_started_again(fake: FakePodium, kubectl: FakeKubectl) -> None:
    fake.jobs.known["w"] = job_records.job("w", 3, 3)
    async with AsyncClient() as client:
        await client.jobs.get("w")
        (first,) = kubectl.pids("port-forward")
        os.kill(first, signal.SIGKILL)
        await gone([first], within=60)
        # A call may come before its end is noticed, and fails as any that is under way.
        job = await retry_unavailable(lambda: client.jobs.get("w"), timeout_s=60)
        assert job.id == "w"
        assert len(kubectl.pids("port-forward")) == 2


async def test_a_watch_goes_on_when_kubectl_ends_under_it(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    job = job_records.job("w", 3, 3)
    fake.jobs.known["w"] = job
    fake.jobs.updates = watched_job(job)
    fake.jobs.hold_watch = True
    seen: list[int] = []
    lost: list[UnavailableError] = []
    async with AsyncClient() as client:
        async for update in client.jobs.watch("w", on_reconnect=lambda e, _: lost.append(e)):
            seen.append(update.event.sequence)
            if len(seen) == len(fake.jobs.updates):
                fake.jobs.hold_watch = False
                os.kill(kubectl.pids("port-forward")[-1], signal.SIGKILL)
    assert seen == [update.event.sequence for update in fake.jobs.updates]
    assert lost
    assert len(kubectl.pids("port-forward")) == 2


async def test_a_pod_that_does_not_answer_is_told_and_then_found_again(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    fake.jobs.known["w"] = job_records.job("w", 3, 3)
    target = "service/podium-controller:50051"
    kubectl.forwards[target] = "127.0.0.1:9"
    kubectl.write()
    async with AsyncClient() as client:
        with pytest.raises(UnavailableError, match="nothing answers at port 50051") as refused:
            await client.jobs.get("w")
        assert "connection refused" in refused.value.message
        kubectl.forwards[target] = fake.address
        kubectl.write()
        assert (await client.jobs.get("w")).id == "w"


async def test_the_openai_api_is_reached_as_long_as_the_client_is_open(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def answer(address: str) -> bytes:
        host, _, port = address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"hello\n")
            line = await reader.readline()
            writer.close()
        except OSError:
            return b""
        return line

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        kubectl.forwards["service/podium-inference-default:50083"] = f"127.0.0.1:{port}"
        kubectl.write()
        async with AsyncClient() as client:
            address = await client.openai_address(50083)
            assert await answer(address) == b"hello\n"
            (first,) = kubectl.pids("port-forward")
            os.kill(first, signal.SIGKILL)
            end = time.monotonic() + 60
            while await answer(address) != b"hello\n":
                assert time.monotonic() < end, "nobody has started it again"
                await asyncio.sleep(0.05)
            assert await client.openai_address(50083) == address
        last = kubectl.pids("port-forward")[-1]
        await gone([last], within=60)


async def test_what_has_an_address_is_called_there_with_the_release_s_token(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    use(
        Kubernetes(context=kubectl.context),
        addresses=contexts.ServiceAddresses(controller=fake.address),
    )
    async with AsyncClient() as client:
        assert [job async for job in client.jobs.list()] == []
        assert kubectl.pids("port-forward") == []
        await client.environments.list()
    assert len(kubectl.pids("port-forward")) == 1


async def test_a_token_that_is_given_is_used_and_the_secret_is_not_asked_for(
    fake: FakePodium, kubectl: FakeKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl.refusals["get secret"] = "Error from server (Forbidden): secrets are forbidden"
    kubectl.write()
    async with AsyncClient() as client:
        with pytest.raises(PermissionDeniedError, match="secrets are forbidden"):
            await loaded(client)
    monkeypatch.setenv("PODIUM_TOKEN", "another")
    async with AsyncClient() as client:
        await loaded(client)
    monkeypatch.setenv("PODIUM_TOKEN", "wrong")
    async with AsyncClient() as client:
        with pytest.raises(UnauthenticatedError):
            await loaded(client)


def test_the_synchronous_client_takes_a_context(kubectl: FakeKubectl, tmp_path: Path) -> None:
    ready = asyncio.new_event_loop()
    contexts.save(
        Contexts(contexts={"cluster": Context(kubernetes=Kubernetes(context=kubectl.context))})
    )
    import threading

    started, stop, served = threading.Event(), asyncio.Event(), []

    async def serve() -> None:
        tokens = tmp_path / "tokens"
        tokens.write_text(TOKEN)
        async with fake_podium(auth_tokens_file=tokens) as running:
            served.append(running)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=ready.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60)
        kubectl.play_release(served[0].address, TOKEN)
        with Client(context="cluster") as client:
            assert list(client.jobs.list()) == []
            (pid,) = kubectl.pids("port-forward")
        asyncio.run(gone([pid], within=60))
    finally:
        ready.call_soon_threadsafe(stop.set)
        thread.join()
    with pytest.raises(NotFoundError, match="no context 'nope'"):
        Client(context="nope")


@pytest.mark.skipif(sys.platform != "linux", reason="uses the parent-death signal")
async def test_kubectl_ends_with_a_client_that_is_killed(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    script = (
        "import asyncio\n"
        "from podium.sdk import AsyncClient\n"
        "async def main():\n"
        "    client = AsyncClient()\n"
        "    [p async for p in client.policies.list()]\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    (pid,) = kubectl.pids("port-forward")
    assert alive(pid)
    process.kill()
    await process.wait()
    await gone([pid], within=60)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Kubernetes(namespace="elsewhere"), "there is no release podium in namespace elsewhere"),
        (Kubernetes(release="other"), "there is no release other in namespace podium"),
        (Kubernetes(pool="large"), "has no pool large; it has default"),
        (Kubernetes(context="nope"), 'kubectl: error: context "nope" does not exist'),
    ],
)
async def test_what_is_not_there_is_named(
    fake: FakePodium, kubectl: FakeKubectl, where: Kubernetes, words: str
) -> None:
    use(where)
    async with AsyncClient() as client:
        with pytest.raises(NotFoundError) as refused:
            await client.jobs.get("w")
    assert words in refused.value.message


async def test_the_pool_is_the_named_one_or_the_one_that_serves_jobs(
    fake: FakePodium, kubectl: FakeKubectl
) -> None:
    kubectl.play_release(fake.address, TOKEN, "production")
    for pool, service in (("", "qwen-7b"), ("qwen-small", "qwen-small")):
        use(Kubernetes(pool=pool), token_env="MINE")
        os.environ["MINE"] = TOKEN
        async with AsyncClient() as client:
            await loaded(client)
        assert f"service/podium-inference-{service}" in kubectl.calls[-1]
    del os.environ["MINE"]


async def test_without_auth_no_secret_is_asked_for(fake: FakePodium, kubectl: FakeKubectl) -> None:
    for item in kubectl.objects:
        if item["kind"] == "Deployment":
            pod = item["spec"]["template"]["spec"]
            pod["volumes"] = [v for v in pod["volumes"] if v["name"] != "auth"]
    kubectl.write()
    async with AsyncClient() as client:
        with pytest.raises(UnauthenticatedError):
            await loaded(client)
    assert not any("secret" in call for call in kubectl.calls)


async def test_without_kubectl_it_is_said(
    fake: FakePodium, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with AsyncClient() as client:
        with pytest.raises(FailedPreconditionError, match="no kubectl on PATH"):
            await client.jobs.get("w")


async def test_a_service_without_any_address_is_named() -> None:
    async with AsyncClient(Addresses(registry="", source="the context lab")) as client:
        with pytest.raises(
            FailedPreconditionError, match="the context lab names no address of the"
        ):
            await client.checkpoints.get("w", 1)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
async def test_the_real_kubectl_s_words_are_told_without_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: closed\n"
        "clusters: [{name: closed, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: closed, context: {cluster: closed, user: ''}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    with pytest.raises(UnavailableError) as refused:
        await Kubectl("closed", "podium").run("get", "services", "--output=json")
    assert "127.0.0.1:9 was refused" in refused.value.message
    assert "memcache" not in refused.value.message
    with pytest.raises(NotFoundError, match="context was not found"):
        await Kubectl("nope").run("get", "services")
