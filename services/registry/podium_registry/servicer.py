"""`podium.registry.v1.RegistryService`: validates, calls the domain, maps the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import google_crc32c
import grpc
from podium.core.errors import (
    DataLossError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    Violation,
)
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc

from podium_registry.adapters.blobs import Blobs
from podium_registry.adapters.garbage_collector import GarbageCollector
from podium_registry.adapters.history import ChangeLog
from podium_registry.adapters.states import States
from podium_registry.adapters.versions import Versions

_Context = grpc.aio.ServicerContext[Any, Any]

DEFAULT_PAGE = 100
_DAY_SECONDS = 86400.0


class RegistryServicer(pb_grpc.RegistryServiceServicer):
    """See the contract for what each method does and how it fails."""

    def __init__(
        self,
        blobs: Blobs,
        versions: Versions,
        states: States,
        history: ChangeLog,
        collector: GarbageCollector,
        *,
        upload_idle_seconds: float,
    ) -> None:
        """`upload_idle_seconds`: the longest wait for an upload's next chunk."""
        self._blobs = blobs
        self._versions = versions
        self._states = states
        self._history = history
        self._collector = collector
        self._upload_idle = upload_idle_seconds

    async def FindBlobs(
        self, request: pb.FindBlobsRequest, context: _Context
    ) -> pb.FindBlobsResponse:
        return pb.FindBlobsResponse(found_digests=await self._blobs.find(request.digests))

    async def StartUpload(
        self, request: pb.StartUploadRequest, context: _Context
    ) -> pb.StartUploadResponse:
        while (upload := await self._blobs.start(request.digest, request.size)) is not None:
            # Another sender of the same bytes may have ended it since: look again.
            with suppress(NotFoundError):
                persisted = await asyncio.to_thread(upload.persist)
                return pb.StartUploadResponse(upload_id=upload.upload_id, persisted_size=persisted)
        return pb.StartUploadResponse(persisted_size=request.size, complete=True)

    async def UploadBlob(
        self, request_iterator: AsyncIterator[pb.UploadBlobRequest], context: _Context
    ) -> pb.UploadBlobResponse:
        message = await self._next(request_iterator)
        if message is None or not message.upload_id:
            raise InvalidArgumentError(
                violations=[Violation("upload_id", "must be set in the first message")]
            )
        upload = self._blobs.upload(message.upload_id)
        async with self._blobs.lock(upload):
            while message is not None:
                if google_crc32c.value(message.data) != message.crc32c:
                    persisted = await asyncio.to_thread(upload.persist)
                    raise DataLossError(
                        f"the chunk at offset {message.offset} does not match its crc32c",
                        reason="WRONG_CRC32C",
                        metadata={"persisted_size": str(persisted)},
                    )
                await self._blobs.append(upload, message.offset, message.data)
                message = await self._next(request_iterator)
            persisted = await asyncio.to_thread(upload.persist)
            complete = persisted == upload.size
            if complete:
                await self._blobs.complete(upload)
        return pb.UploadBlobResponse(persisted_size=persisted, complete=complete)

    async def _next(
        self, requests: AsyncIterator[pb.UploadBlobRequest]
    ) -> pb.UploadBlobRequest | None:
        try:
            return await asyncio.wait_for(anext(requests, None), self._upload_idle)
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"no chunk came for {self._upload_idle:g} seconds", reason="UPLOAD_IDLE"
            ) from error

    async def GetUpload(
        self, request: pb.GetUploadRequest, context: _Context
    ) -> pb.GetUploadResponse:
        persisted, size, complete = await self._blobs.progress(request.upload_id)
        return pb.GetUploadResponse(persisted_size=persisted, size=size, complete=complete)

    async def DownloadBlob(
        self, request: pb.DownloadBlobRequest, context: _Context
    ) -> AsyncIterator[pb.DownloadBlobResponse]:
        async for offset, data, size in self._blobs.read(request.digest, request.offset):
            yield pb.DownloadBlobResponse(
                offset=offset, data=data, crc32c=google_crc32c.value(data), total_size=size
            )

    async def CreateVersion(
        self, request: pb.CreateVersionRequest, context: _Context
    ) -> pb.CreateVersionResponse:
        version = await self._versions.create(request.manifest, request.request_id)
        return pb.CreateVersionResponse(version=version)

    async def AddState(self, request: pb.AddStateRequest, context: _Context) -> pb.AddStateResponse:
        return pb.AddStateResponse(version=await self._states.add(request))

    async def GetVersion(
        self, request: pb.GetVersionRequest, context: _Context
    ) -> pb.GetVersionResponse:
        match request.WhichOneof("selector"):
            case "version":
                version = await self._versions.get(request.model, request.version)
            case "alias":
                version = await self._versions.get_by_alias(request.model, request.alias)
            case "resumable":
                version = await self._states.newest(request.model, request.resumable)
            case _:
                raise InvalidArgumentError(
                    violations=[Violation("selector", "set version, alias or resumable")]
                )
        return pb.GetVersionResponse(version=version)

    async def ListVersions(
        self, request: pb.ListVersionsRequest, context: _Context
    ) -> pb.ListVersionsResponse:
        page, token = await self._versions.page(
            request.model, request.page_size or DEFAULT_PAGE, request.page_token
        )
        return pb.ListVersionsResponse(versions=page, next_page_token=token)

    async def ListModels(
        self, request: pb.ListModelsRequest, context: _Context
    ) -> pb.ListModelsResponse:
        page, token = await self._versions.models(
            request.page_size or DEFAULT_PAGE, request.page_token
        )
        return pb.ListModelsResponse(models=page, next_page_token=token)

    async def DeleteVersion(
        self, request: pb.DeleteVersionRequest, context: _Context
    ) -> pb.DeleteVersionResponse:
        await self._versions.delete(request.model, request.version)
        return pb.DeleteVersionResponse()

    async def SetAlias(self, request: pb.SetAliasRequest, context: _Context) -> pb.SetAliasResponse:
        expected = request.expected_version if request.HasField("expected_version") else None
        version = await self._versions.set_alias(
            request.model, request.alias, request.version, expected
        )
        return pb.SetAliasResponse(version=version)

    async def DeleteAlias(
        self, request: pb.DeleteAliasRequest, context: _Context
    ) -> pb.DeleteAliasResponse:
        await self._versions.delete_alias(request.model, request.alias)
        return pb.DeleteAliasResponse()

    async def RecordEvaluation(
        self, request: pb.RecordEvaluationRequest, context: _Context
    ) -> pb.RecordEvaluationResponse:
        version = await self._versions.record_evaluation(
            request.model, request.version, dict(request.metrics)
        )
        return pb.RecordEvaluationResponse(version=version)

    async def GetLineage(
        self, request: pb.GetLineageRequest, context: _Context
    ) -> pb.GetLineageResponse:
        found = await self._versions.lineage(
            request.model, request.version, request.limit or DEFAULT_PAGE
        )
        return pb.GetLineageResponse(ancestors=found)

    async def WatchVersions(
        self, request: pb.WatchVersionsRequest, context: _Context
    ) -> AsyncIterator[pb.WatchVersionsResponse]:
        # A drain cuts it: the kit ends the streams that are named Watch.
        async with aclosing(self._history.watch(request.model, request.after_sequence)) as changes:
            async for change in changes:
                yield change

    async def AcquireLease(
        self, request: pb.AcquireLeaseRequest, context: _Context
    ) -> pb.AcquireLeaseResponse:
        ttl = request.ttl.seconds + request.ttl.nanos / 1e9
        if not 1 <= ttl <= _DAY_SECONDS:
            raise InvalidArgumentError(
                violations=[Violation("ttl", f"got {ttl:g} s; allowed are 1 s to 86400 s")]
            )
        lease_id, ends = await self._versions.acquire_lease(
            request.model, request.version, request.holder, ttl
        )
        response = pb.AcquireLeaseResponse(lease_id=lease_id)
        response.expire_time.FromNanoseconds(int(ends * 1e9))
        return response

    async def ReleaseLease(
        self, request: pb.ReleaseLeaseRequest, context: _Context
    ) -> pb.ReleaseLeaseResponse:
        await self._versions.release_lease(request.lease_id)
        return pb.ReleaseLeaseResponse()

    async def ApplyRetention(
        self, request: pb.ApplyRetentionRequest, context: _Context
    ) -> pb.ApplyRetentionResponse:
        deleted = await self._versions.retain(
            request.model,
            request.keep_last,
            request.keep_best,
            request.metric,
            request.lower_is_better,
            list(request.keep_versions),
        )
        return pb.ApplyRetentionResponse(deleted_versions=deleted)

    async def CollectGarbage(
        self, request: pb.CollectGarbageRequest, context: _Context
    ) -> pb.CollectGarbageResponse:
        count, freed = await self._collector.collect()
        return pb.CollectGarbageResponse(deleted_blobs=count, freed_bytes=freed)
