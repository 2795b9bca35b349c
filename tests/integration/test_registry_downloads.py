"""Downloads from a real registry over real gRPC: no damaged byte is handed out, ever."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import google_crc32c
import pytest
from podium.core.errors import DataLossError, InvalidArgumentError, NotFoundError, OutOfRangeError
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import rpc_errors
from podium.registry.v1 import registry_service_pb2 as pb
from podium_registry.domain.digests import of_bytes
from support.cutting_proxy import CuttingProxy
from support.full import full
from support.registry_service import MIB, Calls, RegistryService, running

SIZE = 10 * MIB + 321
"""More than the service reads at once."""


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


def flip(path: Path, at: int) -> None:
    """One bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


async def until_damage(calls: Calls, digest: str, offset: int) -> tuple[bytes, str]:
    """What came before the error, and the error's reason."""
    came = bytearray()

    async def receive() -> None:
        with rpc_errors("registry"):
            async for part in calls.stub.DownloadBlob(
                pb.DownloadBlobRequest(digest=digest, offset=offset), timeout=60
            ):
                came.extend(part.data)

    with pytest.raises(DataLossError) as caught:
        await receive()
    return bytes(came), caught.value.reason


def files_of(folder: Path) -> dict[str, Path]:
    """Every file under a folder, by its path there."""
    return {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("at", [MIB - 1, SIZE - 1, full(0), full(MIB), full(8 * MIB + 5)])
async def test_t24_a_flipped_bit_is_never_handed_out(
    service: RegistryService, calls: Calls, client: RegistryClient, tmp_path: Path, at: int
) -> None:
    data = os.urandom(SIZE)
    model = f"flipped-{at}"
    await calls.publish(model, 0, data)
    digest = of_bytes(data)
    flip(service.object_of(digest), at)

    damaged = await service.metric("podium_registry_damaged_blobs_total")
    # Also when the download begins after the bit, but in its chunk.
    for offset in {0, at - at % MIB, at, min(at + 1, SIZE - 1)}:
        if offset // MIB <= at // MIB:
            came, reason = await until_damage(calls, digest, offset)
            assert reason == "BLOB_DAMAGED"
            assert offset + len(came) <= at or not came
            assert came == data[offset : offset + len(came)]
            damaged += 1
    assert await service.metric("podium_registry_damaged_blobs_total") == damaged

    with pytest.raises(DataLossError):
        await client.pull(model, 0, tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()
    assert not files_of(tmp_path)


async def test_chunks_beside_a_flipped_bit_are_still_to_be_had(
    service: RegistryService, calls: Calls
) -> None:
    data = os.urandom(3 * MIB)
    digest = await calls.put(data)
    flip(service.object_of(digest), 7)
    assert await calls.download(digest, MIB + 3) == data[MIB + 3 :]


async def test_the_client_trusts_the_digest_and_not_the_registry(
    service: RegistryService, calls: Calls, client: RegistryClient, tmp_path: Path
) -> None:
    data = os.urandom(MIB // 2)
    await calls.publish("forged", 0, data)
    stored = service.object_of(of_bytes(data))
    flip(stored, 99)
    # The check is forged as well: the registry cannot tell any more.
    check = google_crc32c.value(stored.read_bytes()).to_bytes(4, "big")
    database = sqlite3.connect(service.data_dir / "registry.db")
    with database:
        database.execute(
            "update blobs set chunk_crc32c = ? where digest = ?", (check, of_bytes(data))
        )
    database.close()
    assert await calls.download(of_bytes(data)) != data
    with pytest.raises(DataLossError) as caught:
        await client.pull("forged", 0, tmp_path / "pulled")
    assert caught.value.reason == "WRONG_DIGEST"
    assert not (tmp_path / "pulled").exists()


@pytest.mark.parametrize("change", [lambda path: os.truncate(path, 5), Path.unlink])
async def test_a_blob_that_was_cut_or_removed_is_damaged(
    service: RegistryService, calls: Calls, change: object
) -> None:
    data = os.urandom(MIB + 1)
    digest = await calls.put(data)
    assert callable(change)
    change(service.object_of(digest))
    assert await until_damage(calls, digest, 0) == (b"", "BLOB_DAMAGED")
    assert await until_damage(calls, digest, MIB) == (b"", "BLOB_DAMAGED")


async def test_a_download_begins_anywhere_in_a_blob_and_nowhere_else(calls: Calls) -> None:
    data = os.urandom(SIZE)
    digest = await calls.put(data)
    for offset in (0, 1, MIB - 1, MIB, 8 * MIB, 8 * MIB + 1, SIZE - 1, SIZE):
        assert await calls.download(digest, offset) == data[offset:]
    with pytest.raises(OutOfRangeError) as caught:
        await calls.download(digest, SIZE + 1)
    assert caught.value.metadata["size"] == str(SIZE)
    with pytest.raises(InvalidArgumentError, match="offset"):
        await calls.download(digest, -1)
    with pytest.raises(NotFoundError):
        await calls.download(of_bytes(b"nobody sent this"))
    for wrong in ("", "../registry.db", "sha256:../../registry.db", digest[:-1] + "G"):
        with pytest.raises(InvalidArgumentError, match="digest"):
            await calls.download(wrong)


async def test_t24_a_pull_goes_on_through_a_killed_registry_and_appears_whole(
    tmp_path: Path,
) -> None:
    service = RegistryService(tmp_path / "service")
    files = {f"model/{index}.bin": os.urandom(16 * MIB + index) for index in range(2)}
    await service.start()
    proxy = CuttingProxy(service.port)
    target = tmp_path / "pulled"
    try:
        async with proxy.running():
            client = RegistryClient(proxy.address)
            await client.push(files, pb.Manifest(model="m", kind=pb.VERSION_KIND_FULL))
            # In the middle of it, however busy the machine: the rest does not come.
            proxy.hold_after(6 * MIB)
            pulling = asyncio.create_task(client.pull("m", "latest", target))
            while await service.metric("podium_registry_blob_bytes_downloaded_total") < 2 * MIB:
                await asyncio.sleep(0.002)
            service.kill()
            assert not pulling.done()
            assert not target.exists()
            proxy.release()
            await service.start()
            await pulling
            resent = await service.metric("podium_registry_blob_bytes_downloaded_total")
            assert 0 < resent < sum(map(len, files.values()))
            assert {name: path.read_bytes() for name, path in files_of(target).items()} == files
            await client.close()
    finally:
        service.kill()


async def test_t24_what_an_interrupted_pull_left_does_not_spoil_the_next(
    client: RegistryClient, tmp_path: Path
) -> None:
    old = {"adapter/a.bin": os.urandom(24 * MIB), "state/old.bin": b"old"}
    new = {"adapter/a.bin": os.urandom(2 * MIB)}
    target = tmp_path / "pulled"
    for number, files in enumerate((old, new)):
        await client.push(
            files, pb.Manifest(model="moving", version=number, kind=pb.VERSION_KIND_ADAPTER)
        )
    pulling = asyncio.create_task(client.pull("moving", 0, target))
    while not any(path.stat().st_size > 3 * MIB for path in files_of(tmp_path).values()):
        await asyncio.sleep(0.001)
    assert not pulling.done()
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling

    await client.pull("moving", "latest", target)
    assert {name: path.read_bytes() for name, path in files_of(target).items()} == new
