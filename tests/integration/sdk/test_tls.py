"""Installations with mutual TLS: real servers and certificates, directly and through kubectl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError, UnavailableError
from podium.sdk import AsyncClient
from podium.sdk.connection import contexts, forward
from podium.sdk.connection.addresses import SERVER_NAME, TLS, locate
from podium.sdk.connection.contexts import Context, Contexts, Kubernetes, ServiceAddresses, TlsFiles
from support import job_records
from support.certificates import Authority
from support.fake_kubectl import FakeKubectl
from support.fake_podium import FakePodium, fake_podium

TOKEN = "the-release's"
NAMES = ("podium-controller.podium.svc.cluster.local", "localhost")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of kubectl is there at once: what is not there then never comes."""
    monkeypatch.setattr(forward, "_PATIENCE_SECONDS", 0.2)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("the installation's")


@asynccontextmanager
async def installation(files: dict[str, Path], tmp_path: Path) -> AsyncIterator[FakePodium]:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    settings = {f"tls_{name}_file": path for name, path in files.items()}
    async with fake_podium(auth_tokens_file=tokens, **settings) as running:
        running.jobs.known["w"] = job_records.job("w", 3, 3)
        yield running


@pytest.fixture
async def secure(authority: Authority, tmp_path: Path) -> AsyncIterator[FakePodium]:
    """Its certificate is for NAMES."""
    async with installation(authority.issue(tmp_path / "server", *NAMES), tmp_path) as running:
        yield running


def files(authority: Authority, folder: Path, server_name: str = "") -> TlsFiles:
    paths = authority.issue(folder, "a-client")
    named = {f"{name}_file": str(path) for name, path in paths.items()}
    return TlsFiles(**named, server_name=server_name)


def release(kubectl: FakeKubectl) -> Kubernetes:
    return Kubernetes(context=kubectl.context, namespace="podium", release="podium")


def use(context: Context) -> None:
    contexts.save(Contexts(current="it", contexts={"it": context}))


async def listed() -> list[str]:
    async with AsyncClient() as client:
        return [job.id async for job in client.jobs.list()]


@pytest.mark.parametrize("server_name", ["", NAMES[0]])
async def test_a_release_is_reached_through_kubectl(
    secure: FakePodium,
    kubectl: FakeKubectl,
    authority: Authority,
    tmp_path: Path,
    server_name: str,
) -> None:
    kubectl.play_release(secure.address, TOKEN)
    tls = files(authority, tmp_path / "client", server_name)
    use(Context(kubernetes=release(kubectl), tls=tls))
    assert await listed() == ["w"]
    async with AsyncClient() as client:
        assert [p async for p in client.policies.list()] == []


async def test_the_environment_s_certificates_go_over_a_context_s(
    secure: FakePodium,
    kubectl: FakeKubectl,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubectl.play_release(secure.address, TOKEN)
    use(Context(kubernetes=release(kubectl)))
    for variable, path in zip(TLS, authority.issue(tmp_path / "c", "me").values(), strict=True):
        monkeypatch.setenv(variable, str(path))
    assert await listed() == ["w"]


async def test_an_address_is_called_by_the_certificate_s_name(
    secure: FakePodium, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, path in zip(TLS, authority.issue(tmp_path / "c", "me").values(), strict=True):
        monkeypatch.setenv(variable, str(path))
    monkeypatch.setenv("PODIUM_TOKEN", TOKEN)
    monkeypatch.setenv("PODIUM_ADDRESS", secure.address)
    with pytest.raises(UnavailableError) as raised:
        await listed()
    assert "its certificate is not for 127.0.0.1; it is for" in raised.value.message
    assert set(NAMES) <= set(raised.value.message.replace(",", "").split())
    monkeypatch.setenv(SERVER_NAME, "localhost")
    assert await listed() == ["w"]


@pytest.mark.parametrize("way", ["address", "kubectl"])
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("name", "its certificate is not for elsewhere; it is for"),
        ("authority", "its certificate is not signed by the given authorities"),
        ("client", "it does not take this certificate"),
        ("plaintext", "its port is a plaintext port"),
        ("no files", "its port asks for TLS"),
    ],
)
async def test_a_handshake_that_fails_says_why(
    kubectl: FakeKubectl, authority: Authority, tmp_path: Path, way: str, case: str, words: str
) -> None:
    if (way, case) == ("address", "no files"):
        pytest.skip("a call in plain text is told by gRPC alone that the socket was closed")
    other = Authority("another")
    tls: TlsFiles | None = files(authority, tmp_path / "client", server_name="localhost")
    foreign = files(other, tmp_path / "foreign", server_name="localhost")
    assert tls is not None
    match case:
        case "name":
            tls = tls.model_copy(update={"server_name": "elsewhere"})
        case "authority":
            tls = foreign
        case "client":
            tls = foreign.model_copy(update={"authorities_file": tls.authorities_file})
        case "no files":
            tls = None
    served = {} if case == "plaintext" else authority.issue(tmp_path / "server", *NAMES)
    async with installation(served, tmp_path) as running:
        kubectl.play_release(running.address, TOKEN)
        kubernetes = release(kubectl) if way == "kubectl" else None
        given = ServiceAddresses(controller=running.address if way == "address" else None)
        use(Context(addresses=given, kubernetes=kubernetes, tls=tls))
        with pytest.raises(UnavailableError) as raised:
            await listed()
    assert words in raised.value.message
    assert raised.value.reason == "TLS_HANDSHAKE"


def test_a_context_s_files_are_found_beside_it_and_a_missing_one_is_named(
    authority: Authority, tmp_path: Path
) -> None:
    folder = contexts.folder() / "office"
    authority.issue(folder, "me")
    names = [f"office/{name}.pem" for name in ("certificate", "key", "authorities")]
    tls = TlsFiles(certificate_file=names[0], key_file=names[1], authorities_file=names[2])
    use(Context(addresses=ServiceAddresses(controller="office:1"), tls=tls))
    found = locate()
    assert found.tls is not None
    assert found.tls.authorities == authority.pem
    (folder / "key.pem").unlink()
    with pytest.raises(InvalidArgumentError, match=r"key.*No such file"):
        locate()
