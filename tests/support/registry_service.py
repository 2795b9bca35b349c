"""The real registry as a process, and the calls that its tests make over real gRPC."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeVar

import google_crc32c
import grpc
import httpx
from google.protobuf.duration_pb2 import Duration
from podium.kit.rpc import connect, rpc_errors
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from podium_registry.domain.digests import of_bytes
from support.folders import service_folder
from support.forked_service import ForkedService
from support.processes import free_port, start_process, wait_for_port
from support.registry import manifest_of

MIB = 1 << 20
T = TypeVar("T")


class RegistryService:
    """A replica, which keeps its ports and its folder over its deaths."""

    def __init__(self, folder: Path, **settings: object) -> None:
        """`settings` by the names of its Settings class."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.data_dir = Path(str(settings.get("data_dir", folder / "data")))
        self.port, health, self._metrics = (free_port() for _ in range(3))
        ports = {"port": self.port, "health_port": health, "metrics_port": self._metrics}
        values = {**ports, "data_dir": self.data_dir, **settings}
        self._variables = {
            f"PODIUM_REGISTRY_{name.upper()}": str(value) for name, value in values.items()
        }
        self._process: ForkedService | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Returns when it listens."""
        self._process = start_process("podium_registry", self._variables, self.folder)
        await wait_for_port(self.port, self._process)

    def kill(self) -> None:
        """SIGKILL, and gone when it returns."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    async def restart(self) -> None:
        """Dies at once and comes back."""
        self.kill()
        await self.start()

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(process.wait, 120)

    @asynccontextmanager
    async def calls(self) -> AsyncIterator[Calls]:
        """Calls on a channel of their own."""
        async with connect(self.address) as channel:
            yield Calls(channel)

    async def metric(self, name: str) -> float:
        """A number that it publishes since its start."""
        async with httpx.AsyncClient(timeout=60) as client:
            text = (await client.get(f"http://127.0.0.1:{self._metrics}/metrics")).text
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found, name
        return float(found[1])

    def log(self) -> str:
        """What it wrote."""
        return (self.folder / "podium_registry.log").read_text()

    def object_of(self, digest: str) -> Path:
        """Where it keeps a blob, with the default store."""
        name = digest.removeprefix("sha256:")
        return self.data_dir / "blobs" / "sha256" / name[:2] / name


class Calls:
    """The service's methods, with our errors instead of gRPC's."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.stub: pb_grpc.RegistryServiceAsyncStub = pb_grpc.RegistryServiceStub(channel)

    async def start_upload(self, data: bytes) -> pb.StartUploadResponse:
        with rpc_errors("registry"):
            return await self.stub.StartUpload(
                pb.StartUploadRequest(digest=of_bytes(data), size=len(data))
            )

    async def send(
        self, messages: Iterable[pb.UploadBlobRequest] | AsyncIterator[pb.UploadBlobRequest]
    ) -> pb.UploadBlobResponse:
        with rpc_errors("registry"):
            return await self.stub.UploadBlob(messages, timeout=60)

    async def persisted(self, upload_id: str) -> int:
        with rpc_errors("registry"):
            found = await self.stub.GetUpload(pb.GetUploadRequest(upload_id=upload_id))
        return found.persisted_size

    async def put(self, data: bytes) -> str:
        """Uploads what is missing of a blob; its digest."""
        started = await self.start_upload(data)
        if not started.complete:
            sent = await self.send(chunks(data, started.upload_id, started.persisted_size))
            assert sent.complete
        return of_bytes(data)

    async def found(self, *digests: str) -> list[str]:
        with rpc_errors("registry"):
            response = await self.stub.FindBlobs(pb.FindBlobsRequest(digests=digests))
        return list(response.found_digests)

    async def download(self, digest: str, offset: int = 0) -> bytes:
        """A blob's bytes from an offset; every chunk's place and crc32c is checked."""
        parts = bytearray()
        with rpc_errors("registry"):
            async for part in self.stub.DownloadBlob(
                pb.DownloadBlobRequest(digest=digest, offset=offset), timeout=60
            ):
                assert part.offset == offset + len(parts)
                assert part.crc32c == google_crc32c.value(part.data)
                parts += part.data
        return bytes(parts)

    async def create(
        self, manifest: pb.Manifest, request_id: str = "", *, stored: bytes = b""
    ) -> pb.Version:
        """Publishes a manifest; `stored` is uploaded before."""
        if stored:
            await self.put(stored)
        with rpc_errors("registry"):
            response = await self.stub.CreateVersion(
                pb.CreateVersionRequest(manifest=manifest, request_id=request_id)
            )
        return response.version

    async def publish(
        self, model: str, version: int, data: bytes = b"weights", **metrics: float
    ) -> pb.Version:
        """Publishes a version with one file."""
        manifest = manifest_of(model, version, {"adapter/a.bin": data}, **metrics)
        return await self.create(manifest, stored=data)

    async def get(self, model: str, version: int | str) -> pb.Version:
        request = pb.GetVersionRequest(model=model)
        if isinstance(version, int):
            request.version = version
        else:
            request.alias = version
        with rpc_errors("registry"):
            return (await self.stub.GetVersion(request)).version

    async def numbers(self, model: str) -> list[int]:
        """The versions that a model has, in ascending order."""
        with rpc_errors("registry"):
            page = await self.stub.ListVersions(pb.ListVersionsRequest(model=model, page_size=1000))
        return sorted(each.manifest.version for each in page.versions)

    async def set_alias(
        self, model: str, alias: str, version: int, expected: int | None = None
    ) -> pb.Version:
        with rpc_errors("registry"):
            response = await self.stub.SetAlias(
                pb.SetAliasRequest(
                    model=model, alias=alias, version=version, expected_version=expected
                )
            )
        return response.version

    async def lease(self, model: str, version: int, seconds: int = 60) -> str:
        request = pb.AcquireLeaseRequest(
            model=model, version=version, holder="test", ttl=Duration(seconds=seconds)
        )
        with rpc_errors("registry"):
            return (await self.stub.AcquireLease(request)).lease_id

    async def release(self, lease_id: str) -> None:
        with rpc_errors("registry"):
            await self.stub.ReleaseLease(pb.ReleaseLeaseRequest(lease_id=lease_id))

    async def delete(self, model: str, version: int) -> None:
        with rpc_errors("registry"):
            await self.stub.DeleteVersion(pb.DeleteVersionRequest(model=model, version=version))

    async def retain(self, **rule: object) -> list[int]:
        with rpc_errors("registry"):
            response = await self.stub.ApplyRetention(pb.ApplyRetentionRequest(**rule))
        return list(response.deleted_versions)

    async def collect(self) -> pb.CollectGarbageResponse:
        with rpc_errors("registry"):
            return await self.stub.CollectGarbage(pb.CollectGarbageRequest())

    async def changes(self, model: str, after: int, count: int) -> list[tuple[int, int, int, str]]:
        """(sequence, change, version, alias) of the next changes, waited for."""
        seen: list[tuple[int, int, int, str]] = []
        with rpc_errors("registry"):
            stream = self.stub.WatchVersions(
                pb.WatchVersionsRequest(model=model, after_sequence=after), timeout=200
            )
            async for change in stream:
                seen.append((change.sequence, change.change, change.version, change.alias))
                if len(seen) == count:
                    stream.cancel()
                    break
        return seen


def chunk(
    data: bytes, offset: int = 0, upload_id: str = "", *, crc32c: int | None = None
) -> pb.UploadBlobRequest:
    """One message of an upload; its crc32c is right unless it is given."""
    return pb.UploadBlobRequest(
        upload_id=upload_id,
        offset=offset,
        data=data,
        crc32c=google_crc32c.value(data) if crc32c is None else crc32c,
    )


def chunks(data: bytes, upload_id: str, start: int = 0) -> list[pb.UploadBlobRequest]:
    """The messages that upload a blob from an offset on; at least one."""
    offsets = range(start, len(data), MIB) or [start]
    return [chunk(data[at : at + MIB], at, upload_id) for at in offsets]


@contextmanager
def running(**settings: object) -> Iterator[RegistryService]:
    """A registry for the tests of a module: it takes most of a second to start."""
    folder = service_folder("podium-registry-")
    service = RegistryService(folder, **settings)
    try:
        asyncio.run(service.start())
        yield service
    finally:
        service.kill()
        shutil.rmtree(folder, ignore_errors=True)
