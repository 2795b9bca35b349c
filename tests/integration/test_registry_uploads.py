"""Uploads to a real registry over real gRPC: what is damaged, cut, false, contested or too much."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from podium.core.errors import (
    AbortedError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PodiumError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import rpc_errors
from podium.registry.v1 import registry_service_pb2 as pb
from podium_registry.domain.digests import of_bytes
from support.cutting_proxy import CuttingProxy
from support.registry import manifest_of
from support.registry_service import MIB, Calls, RegistryService, chunk, chunks, running
from support.small_disks import Disk, LimitedFiles, ReadOnlyUploads, SmallMount


@pytest.fixture(scope="module")
def service() -> Iterator[RegistryService]:
    with running(max_blob_bytes=64 * MIB) as started:
        yield started


@pytest.fixture
async def calls(service: RegistryService) -> AsyncIterator[Calls]:
    async with service.calls() as made:
        yield made


async def until_persisted(calls: Calls, upload_id: str, size: int) -> int:
    """What is persisted, once it is at least that."""
    for _ in range(600):
        persisted = await calls.persisted(upload_id)
        if persisted >= size:
            return persisted
        await asyncio.sleep(0.02)
    raise AssertionError("the bytes were not persisted in time")


async def test_a_damaged_chunk_is_refused_and_the_upload_goes_on_before_it(calls: Calls) -> None:
    data = os.urandom(2 * MIB + 5)
    upload_id = (await calls.start_upload(data)).upload_id
    flipped = bytes([data[MIB] ^ 1]) + data[MIB + 1 : 2 * MIB]
    sound = chunk(data[MIB : 2 * MIB]).crc32c
    with pytest.raises(DataLossError) as caught:
        await calls.send(
            [chunk(data[:MIB], 0, upload_id), chunk(flipped, MIB, upload_id, crc32c=sound)]
        )
    assert caught.value.reason == "WRONG_CRC32C"
    assert caught.value.metadata["persisted_size"] == str(MIB)

    resumed = await calls.start_upload(data)
    assert (resumed.upload_id, resumed.persisted_size) == (upload_id, MIB)
    assert (await calls.send(chunks(data, upload_id, MIB))).complete
    assert await calls.download(of_bytes(data)) == data


@pytest.mark.parametrize("offset", [0, MIB - 1, MIB + 1])
async def test_a_chunk_at_a_wrong_offset_says_where_to_go_on(calls: Calls, offset: int) -> None:
    data = os.urandom(2 * MIB)
    upload_id = (await calls.start_upload(data)).upload_id
    assert not (await calls.send([chunk(data[:MIB], 0, upload_id)])).complete
    with pytest.raises(OutOfRangeError) as caught:
        await calls.send([chunk(data[offset : offset + 9], offset, upload_id)])
    assert caught.value.reason == "WRONG_OFFSET"
    assert caught.value.metadata["persisted_size"] == str(MIB)
    assert (await calls.send(chunks(data, upload_id, MIB))).complete


async def test_a_truncated_upload_is_no_blob_until_its_rest_has_come(calls: Calls) -> None:
    data = os.urandom(MIB + 100)
    digest = of_bytes(data)
    upload_id = (await calls.start_upload(data)).upload_id
    sent = await calls.send([chunk(data[:MIB], 0, upload_id)])
    assert (sent.persisted_size, sent.complete) == (MIB, False)
    assert await calls.found(digest) == []
    with pytest.raises(NotFoundError):
        await calls.download(digest)
    assert (await calls.send(chunks(data, upload_id, MIB))).complete
    assert await calls.found(digest) == [digest]
    with rpc_errors("registry"):
        done = await calls.stub.GetUpload(pb.GetUploadRequest(upload_id=upload_id))
    assert (done.persisted_size, done.size, done.complete) == (len(data), len(data), True)


async def test_bytes_of_another_digest_are_refused_and_the_upload_begins_again(
    calls: Calls,
) -> None:
    data, other = os.urandom(MIB + 7), os.urandom(MIB + 7)
    upload_id = (await calls.start_upload(data)).upload_id
    with pytest.raises(DataLossError) as caught:
        await calls.send(chunks(other, upload_id))
    assert caught.value.reason == "WRONG_DIGEST"
    assert caught.value.metadata["actual"] == of_bytes(other)
    assert caught.value.metadata["persisted_size"] == "0"
    assert await calls.persisted(upload_id) == 0
    assert await calls.found(of_bytes(data), of_bytes(other)) == []
    assert (await calls.send(chunks(data, upload_id))).complete


async def test_a_lie_about_the_size_stores_nothing_and_hinders_nobody(calls: Calls) -> None:
    data = os.urandom(MIB)
    digest = of_bytes(data)
    with rpc_errors("registry"):
        less, more = [
            await calls.stub.StartUpload(pb.StartUploadRequest(digest=digest, size=size))
            for size in (MIB - 1, MIB + 1)
        ]
    with pytest.raises(OutOfRangeError) as caught:
        await calls.send([chunk(data, 0, less.upload_id)])
    assert caught.value.reason == "PAST_DECLARED_SIZE"
    with pytest.raises(DataLossError):
        await calls.send([chunk(data[:-1], 0, less.upload_id)])
    assert not (await calls.send([chunk(data, 0, more.upload_id)])).complete
    assert await calls.found(digest) == []

    await calls.put(data)
    for size in (MIB - 1, MIB + 1):
        manifest = manifest_of("liar", 0, {"adapter/a.bin": data})
        manifest.files[0].size = size
        with pytest.raises(InvalidArgumentError, match=r"files\[0\]\.size.*1048576"):
            await calls.create(manifest)
    with pytest.raises(NotFoundError):
        await calls.get("liar", 0)


async def test_limits_and_malformed_uploads_are_refused_by_field(calls: Calls) -> None:
    digest = of_bytes(b"never sent")
    stub = calls.stub
    with rpc_errors("registry"):
        with pytest.raises(OutOfRangeError) as caught, rpc_errors("registry"):
            await stub.StartUpload(pb.StartUploadRequest(digest=digest, size=64 * MIB + 1))
        assert caught.value.reason == "BLOB_TOO_LARGE"
        with pytest.raises(InvalidArgumentError, match="size"), rpc_errors("registry"):
            await stub.StartUpload(pb.StartUploadRequest(digest=digest, size=-1))
        for wrong in ("", "md5:00", "sha256:" + "0" * 63, digest.upper(), digest + "/../x"):
            with pytest.raises(InvalidArgumentError, match="digest"), rpc_errors("registry"):
                await stub.StartUpload(pb.StartUploadRequest(digest=wrong, size=1))
    for unknown in ("nobody", "../registry", "a/../../b", digest[7:] + "-zz"):
        with pytest.raises(NotFoundError):
            await calls.persisted(unknown)
        with pytest.raises(NotFoundError):
            await calls.send([chunk(b"x", 0, unknown)])
    with pytest.raises(InvalidArgumentError, match="upload_id"):
        await calls.send([chunk(b"x")])
    with pytest.raises(InvalidArgumentError, match="upload_id"):
        await calls.send([])
    large = os.urandom(MIB + 1)
    upload_id = (await calls.start_upload(large)).upload_id
    with pytest.raises(InvalidArgumentError, match="data"):
        await calls.send([chunk(large, 0, upload_id)])
    assert await calls.persisted(upload_id) == 0


async def test_an_empty_blob_is_a_blob(calls: Calls) -> None:
    await calls.put(b"")
    assert await calls.download(of_bytes(b"")) == b""


async def test_one_upload_has_one_writer(calls: Calls) -> None:
    data = os.urandom(3 * MIB)
    upload_id = (await calls.start_upload(data)).upload_id
    parts = chunks(data, upload_id)
    first = calls.stub.UploadBlob(timeout=60)
    await first.write(parts[0])
    await until_persisted(calls, upload_id, MIB)
    with pytest.raises(AbortedError) as caught:
        await calls.send(parts[1:2])
    assert caught.value.reason == "UPLOAD_BUSY"
    assert await calls.persisted(upload_id) == MIB

    # The second may have it once the first has gone, and what the first sent stays.
    first.cancel()
    while True:
        try:
            assert (await calls.send(parts[1:])).complete
            break
        except AbortedError:
            await asyncio.sleep(0.02)
    assert await calls.download(of_bytes(data)) == data


async def test_many_at_once_who_send_the_same_blob_all_have_it(calls: Calls) -> None:
    data = os.urandom(2 * MIB + 1)

    async def send() -> None:
        while True:
            # gRPC hides the refusal of a stream behind UNAVAILABLE when a write met its end.
            with suppress(AbortedError, OutOfRangeError, NotFoundError, UnavailableError):
                await calls.put(data)
                return
            await asyncio.sleep(0.02)

    await asyncio.gather(*(send() for _ in range(8)))
    assert await calls.download(of_bytes(data)) == data


async def test_clients_who_send_the_same_files_at_once_wait_for_each_other(
    service: RegistryService, tmp_path: Path
) -> None:
    files = {"adapter.bin": os.urandom(3 * MIB + 1)}
    clients = [RegistryClient(service.address) for _ in range(6)]
    try:
        await asyncio.gather(
            *(
                client.push(
                    files,
                    pb.Manifest(model=f"beside-{index}", kind=pb.VERSION_KIND_ADAPTER),
                    request_id=f"beside-{index}/0",
                )
                for index, client in enumerate(clients)
            )
        )
        for index, client in enumerate(clients):
            await client.pull(f"beside-{index}", 0, tmp_path / str(index))
            assert (tmp_path / str(index) / "adapter.bin").read_bytes() == files["adapter.bin"]
    finally:
        for client in clients:
            await client.close()


async def test_an_upload_outlives_a_killed_registry_at_the_persisted_offset(
    tmp_path: Path,
) -> None:
    service = RegistryService(tmp_path)
    data = os.urandom(4 * MIB + 11)
    await service.start()
    try:
        async with service.calls() as calls:
            upload_id = (await calls.start_upload(data)).upload_id
            stream = calls.stub.UploadBlob(timeout=60)
            for part in chunks(data, upload_id)[:3]:
                await stream.write(part)
            promised = await until_persisted(calls, upload_id, 2 * MIB)
            await service.restart()
            with pytest.raises(UnavailableError), rpc_errors("registry"):
                await stream
        async with service.calls() as calls:
            assert await calls.persisted(upload_id) >= promised
            resumed = await calls.start_upload(data)
            assert resumed.upload_id == upload_id
            assert resumed.persisted_size >= promised
            await calls.send(chunks(data, upload_id, resumed.persisted_size))
            rest = len(data) - resumed.persisted_size
            assert await service.metric("podium_registry_blob_bytes_uploaded_total") == rest
            assert await calls.download(of_bytes(data)) == data
    finally:
        service.kill()


async def test_t24_a_client_publishes_through_a_killed_registry_and_sends_no_byte_twice(
    tmp_path: Path,
) -> None:
    service = RegistryService(tmp_path)
    files = {f"adapter/{index}.bin": os.urandom(12 * MIB + index) for index in range(3)}
    await service.start()
    proxy = CuttingProxy(service.port)
    try:
        async with proxy.running():
            client = RegistryClient(proxy.address)
            # In the middle of it, however busy the machine: the rest does not arrive.
            proxy.hold_after(10 * MIB)
            pushing = asyncio.create_task(
                client.push(
                    files, pb.Manifest(model="m", kind=pb.VERSION_KIND_ADAPTER), request_id="m/0"
                )
            )
            while await service.metric("podium_registry_blob_bytes_uploaded_total") < 4 * MIB:
                await asyncio.sleep(0.005)
            service.kill()
            before = sum(path.stat().st_size for path in (service.data_dir / "uploads").iterdir())
            assert not pushing.done()
            proxy.release()
            await service.start()
            async with service.calls() as calls:
                # The manifest is the last to appear.
                with suppress(NotFoundError):
                    await calls.get("m", 0)
                    stored = {of_bytes(data) for data in files.values()}
                    assert set(await calls.found(*stored)) == stored
                await pushing
                again = await service.metric("podium_registry_blob_bytes_uploaded_total")
                whole = sum(map(len, files.values()))
                assert again <= whole - before + 1024  # the records of the uploads
                version = await client.pull("m", 0, tmp_path / "pulled")
            await client.close()
        assert version.aliases == ["latest"]
        for path, data in files.items():
            assert (tmp_path / "pulled" / path).read_bytes() == data
    finally:
        service.kill()


@pytest.fixture(params=["limited files", "uploads do not fit", "blobs do not fit"])
async def disk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Disk]:
    service = RegistryService(tmp_path)
    made: Disk
    match request.param:
        case "limited files":
            made = LimitedFiles(service)
        case "uploads do not fit":
            made = SmallMount(service, 4)
        case _:
            # Enough for the 6 MiB of the test once, but not for the second copy.
            made = SmallMount(service, 9)
    try:
        await service.start()
        yield made
    finally:
        service.kill()
        made.remove()


async def test_a_full_disk_is_said_so_and_the_service_goes_on(disk: Disk) -> None:
    async with disk.service.calls() as calls:
        before = await calls.publish("m", 0, b"small")
        disk.shrink()
        data = os.urandom(6 * MIB)
        upload_id = (await calls.start_upload(data)).upload_id
        with pytest.raises(ResourceExhaustedError) as caught:
            await calls.send(chunks(data, upload_id))
        assert caught.value.reason == "STORAGE_FULL"
        assert str(disk.service.data_dir) not in str(caught.value)

        # Full, and yet it answers and hands out what it has.
        kept = await calls.persisted(upload_id)
        assert MIB <= kept <= 6 * MIB
        assert await calls.found(of_bytes(data)) == []
        with pytest.raises(PodiumError) as again:
            await calls.send(chunks(data, upload_id, kept))
        assert again.value.reason == "STORAGE_FULL"
        assert await calls.get("m", 0) == before
        assert await calls.download(of_bytes(b"small")) == b"small"

        disk.grow()
        resumed = await calls.start_upload(data)
        assert resumed.persisted_size == kept
        assert (await calls.send(chunks(data, upload_id, kept))).complete
        assert await calls.download(of_bytes(data)) == data
        await calls.publish("m", 1, data)
    assert "Traceback" not in disk.service.log()


async def test_a_disk_that_turns_read_only_is_said_so_and_uploads_go_on_after_it(
    tmp_path: Path,
) -> None:
    service = RegistryService(tmp_path)
    disk = ReadOnlyUploads(service)
    try:
        await service.start()
        async with service.calls() as calls:
            data = os.urandom(2 * MIB)
            upload_id = (await calls.start_upload(data)).upload_id
            disk.forbid()
            for refused in (
                calls.start_upload(b"another"),
                calls.send(chunks(data, upload_id)),
            ):
                with pytest.raises(
                    FailedPreconditionError, match="Read-only file system"
                ) as caught:
                    await refused
                assert caught.value.reason == "STORE_FORBIDDEN"
                assert str(tmp_path) not in str(caught.value)
            disk.allow()
            kept = (await calls.start_upload(data)).persisted_size
            assert (await calls.send(chunks(data, upload_id, kept))).complete
            assert await calls.download(of_bytes(data)) == data
        assert "Traceback" not in service.log()
    finally:
        service.kill()
        disk.remove()
