"""Damaged blobs of a real registry: the same bytes mend them, and no hole is called complete."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from podium.core.errors import DataLossError, FailedPreconditionError, NotFoundError
from podium.kit.http_server import end_http_server
from podium.kit.registry_client import RegistryClient
from podium.registry.v1 import registry_service_pb2 as pb
from podium_registry.domain.digests import of_bytes
from support.full import full
from support.registry import manifest_of
from support.registry_service import MIB, Calls, RegistryService, running

Change = Callable[[Path], None]


def flip(path: Path) -> None:
    """One bit, in the middle."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x10]))


def cut(path: Path) -> None:
    os.truncate(path, 5)


ONE_PUT, IN_PARTS = 3 * MIB + 7, 33 * MIB + 1


@pytest.fixture(scope="module")
def service() -> Iterator[RegistryService]:
    with running() as started:
        yield started


@pytest.fixture
async def calls(service: RegistryService) -> AsyncIterator[Calls]:
    async with service.calls() as made:
        yield made


@pytest.fixture
async def client(service: RegistryService) -> AsyncIterator[RegistryClient]:
    made = RegistryClient(service.address)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("size", "change"),
    [
        (ONE_PUT, flip),
        (IN_PARTS, Path.unlink),
        full(ONE_PUT, cut),
        full(ONE_PUT, Path.unlink),
        full(IN_PARTS, flip),
        full(IN_PARTS, cut),
    ],
)
async def test_the_same_bytes_mend_a_blob_that_was_met_damaged(
    service: RegistryService,
    client: RegistryClient,
    tmp_path: Path,
    change: Change,
    size: int,
) -> None:
    data = os.urandom(size)
    model = f"mended-{size}-{getattr(change, '__name__', 'removed')}"
    manifest = pb.Manifest(model=model, version=1, kind=pb.VERSION_KIND_ADAPTER)
    await client.push({"adapter/a.bin": data}, manifest)
    change(service.object_of(of_bytes(data)))
    with pytest.raises(DataLossError) as caught:
        await client.pull(model, 1, tmp_path / "damaged")
    assert caught.value.reason == "BLOB_DAMAGED"

    manifest.version = 2
    await client.push({"adapter/a.bin": data}, manifest)
    for version in (1, 2):
        await client.pull(model, version, tmp_path / str(version))
        assert (tmp_path / str(version) / "adapter/a.bin").read_bytes() == data
    assert service.object_of(of_bytes(data)).read_bytes() == data
    assert "an upload of the same bytes mends it" in caught.value.message


@pytest.mark.parametrize("change", [cut, Path.unlink], ids=["cut", "removed"])
async def test_nothing_is_complete_over_a_hole_that_nobody_has_met(
    service: RegistryService, calls: Calls, change: Change
) -> None:
    model = f"hole-{getattr(change, '__name__', 'removed')}"
    for number, ask in enumerate(("start", "create", "find")):
        data = os.urandom(MIB + number)
        digest = await calls.put(data)
        upload_id = (await calls.start_upload(data)).upload_id
        assert upload_id == ""
        met = await service.metric("podium_registry_damaged_blobs_total")
        change(service.object_of(digest))
        if ask == "start":
            assert not (await calls.start_upload(data)).complete
        elif ask == "create":
            with pytest.raises(FailedPreconditionError) as caught:
                await calls.create(manifest_of(model, 1, {"a.bin": data}))
            assert caught.value.reason == "MISSING_BLOB"
            with pytest.raises(NotFoundError):
                await calls.get(model, 1)
        else:
            assert await calls.found(digest) == []
        assert await service.metric("podium_registry_damaged_blobs_total") == met + 1
        assert await calls.put(data) == digest
        assert await calls.found(digest) == [digest]
        assert await calls.download(digest) == data
        assert (await calls.start_upload(data)).complete


async def test_an_upload_that_had_ended_is_no_longer_when_its_blob_is_lost(
    service: RegistryService, calls: Calls
) -> None:
    data = os.urandom(MIB)
    started = await calls.start_upload(data)
    digest = await calls.put(data)
    assert await calls.persisted(started.upload_id) == len(data)
    service.object_of(digest).unlink()
    assert await calls.found(digest) == []
    with pytest.raises(NotFoundError):
        await calls.persisted(started.upload_id)


class _Forbidding(BaseHTTPRequestHandler):
    """S3 as it answers who has no right."""

    def _refuse(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>secret-bucket</Message></Error>"
        self.send_response(403)
        self.send_header("content-type", "application/xml")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _refuse  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def forbidding() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forbidding)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        end_http_server(server)
        thread.join()


async def test_a_store_that_refuses_the_registry_is_named_and_is_no_outage(
    forbidding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": forbidding,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "wrong",
        "AWS_SECRET_ACCESS_KEY": "wrong",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    service = RegistryService(tmp_path, store_url="s3://bucket/podium")
    await service.start()
    try:
        async with service.calls() as calls:
            with pytest.raises(FailedPreconditionError) as caught:
                await calls.put(b"weights")
        assert caught.value.reason == "STORE_FORBIDDEN"
        assert "refuses the registry" in caught.value.message
        assert "secret-bucket" not in str(caught.value)
    finally:
        service.kill()
