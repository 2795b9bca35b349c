"""Mutual TLS: who shows no certificate of the authority is not heard."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health_pb2, health_pb2_grpc
from podium.core.errors import InvalidArgumentError, UnavailableError
from podium.kit.rpc import Server, ServerSettings, connect, load_settings, rpc_errors
from podium.kit.rpc.tls import Tls
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from prometheus_client import REGISTRY
from pydantic_settings import SettingsConfigDict
from support.certificates import Authority


class Registry(pb_grpc.RegistryServiceServicer):
    """One method, which answers."""

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> Any:
        return pb.ListModelsResponse()


class Half(ServerSettings):
    """Settings of a service."""

    model_config = SettingsConfigDict(env_prefix="PODIUM_HALF_")


@pytest.fixture
def authority() -> Authority:
    return Authority("here")


@pytest.fixture
async def server(authority: Authority, tmp_path: Path) -> AsyncIterator[Server]:
    files = authority.issue(tmp_path / "server", "localhost", "127.0.0.1", "podium-registry")
    settings = ServerSettings(**{f"tls_{name}_file": path for name, path in files.items()})
    made = Server("registry", settings)
    name = "podium.registry.v1.RegistryService"
    made.add(pb_grpc.add_RegistryServiceServicer_to_server, Registry(), name)
    await made.start()
    yield made
    await made.stop(0)


def client(authority: Authority, folder: Path) -> Tls:
    return Tls.load(**authority.issue(folder, "client"))


async def call(server: Server, **options: Any) -> None:
    async with connect(f"127.0.0.1:{server.port}", **options) as channel:
        await ask(channel)


async def ask(channel: grpc.aio.Channel) -> None:
    with rpc_errors("registry"):
        stub = pb_grpc.RegistryServiceStub(channel)
        await stub.ListModels(pb.ListModelsRequest(), timeout=20)


async def test_with_certificates_of_one_authority_they_talk(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    await call(server, tls=client(authority, tmp_path / "client"))


async def test_a_peer_may_be_known_by_another_name_than_its_address(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    tls = client(authority, tmp_path / "client")
    await call(server, tls=tls, server_name="podium-registry")
    with pytest.raises(UnavailableError):
        await call(server, tls=tls, server_name="somebody-else")


async def test_plain_text_is_not_heard(server: Server) -> None:
    with pytest.raises(UnavailableError):
        await call(server)


async def test_a_caller_without_a_certificate_is_not_heard(
    server: Server, authority: Authority
) -> None:
    anonymous = grpc.ssl_channel_credentials(authority.pem)
    address = f"127.0.0.1:{server.port}"
    async with grpc.aio.secure_channel(address, anonymous) as channel:
        with pytest.raises(UnavailableError):
            await ask(channel)


async def test_another_authoritys_certificate_is_taken_by_neither_side(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    foreign = client(Authority("elsewhere"), tmp_path / "foreign")
    with pytest.raises(UnavailableError):
        await call(server, tls=foreign)
    # It trusts the server, and is not trusted.
    with pytest.raises(UnavailableError):
        await call(server, tls=Tls(foreign.certificate, foreign.key, authority.pem))


async def test_probes_need_no_certificate(server: Server) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.health_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=""), timeout=20)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_what_is_no_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue(tmp_path, "server")
    files["key"].write_text("nothing")
    files["certificate"].unlink()
    with pytest.raises(InvalidArgumentError) as caught:
        Tls.load(**files)
    assert [v.field for v in caught.value.violations] == ["tls_certificate_file", "tls_key_file"]


@pytest.mark.parametrize("end", [timedelta(days=1), timedelta(days=-2), timedelta(days=9000)])
def test_until_when_a_certificate_is_valid_is_shown(
    authority: Authority, tmp_path: Path, end: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.issue(tmp_path, "server", end=end)
    Tls.load(**files)
    made = x509.load_pem_x509_certificate(files["certificate"].read_bytes())
    shown = {
        bound: REGISTRY.get_sample_value(
            "podium_tls_certificate_timestamp_seconds", {"bound": bound}
        )
        for bound in ("start", "end")
    }
    assert shown == {
        "start": made.not_valid_before_utc.timestamp(),
        "end": made.not_valid_after_utc.timestamp(),
    }
    told = f"{made.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, and it is " in caplog.text
    assert told == (end < timedelta(0))


def with_passphrase(key: bytes) -> bytes:
    form = serialization.BestAvailableEncryption(b"secret")
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form
    )


@pytest.mark.parametrize(
    ("name", "broken", "words"),
    [
        ("authorities", lambda pem: pem[:200] + pem[240:], "a certificate is broken"),
        ("authorities", lambda pem: pem + pem[:200] + pem[240:], "a certificate is broken"),
        ("key", with_passphrase, "has a passphrase"),
        ("certificate", lambda pem: pem[:200] + pem[240:], "no key of"),
    ],
)
def test_a_file_that_is_broken_is_named(
    authority: Authority,
    tmp_path: Path,
    name: str,
    broken: Callable[[bytes], bytes],
    words: str,
) -> None:
    files = authority.issue(tmp_path, "server")
    files[name].write_bytes(broken(files[name].read_bytes()))
    with pytest.raises(InvalidArgumentError, match=words):
        Tls.load(**files)


async def test_a_mark_of_byte_order_is_no_part_of_a_file(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue(tmp_path / "server", "127.0.0.1")
    theirs = authority.issue(tmp_path / "client", "client")
    for file in (*files.values(), *theirs.values()):
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes().replace(b"\n", b"\r\n"))
    made = Server("registry", ServerSettings(**{f"tls_{n}_file": p for n, p in files.items()}))
    name = "podium.registry.v1.RegistryService"
    made.add(pb_grpc.add_RegistryServiceServicer_to_server, Registry(), name)
    await made.start()
    await call(made, tls=Tls.load(**theirs))
    await made.stop(0)


def test_a_half_of_tls_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PODIUM_HALF_TLS_KEY_FILE", str(tmp_path / "key.pem"))
    with pytest.raises(SystemExit) as caught:
        load_settings(Half)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "tls_certificate_file, tls_authorities_file must be set too" in said
