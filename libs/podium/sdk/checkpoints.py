"""Checkpoint versions in the registry: list, read, download."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from podium.core.errors import NotFoundError
from podium.kit.registry_client import RegistryClient
from podium.registry.v1 import registry_service_pb2 as pb
from podium.registry.v1 import registry_service_pb2_grpc as pb_grpc
from podium.sdk.connection.failures import failures
from podium.sdk.paging import pages

if TYPE_CHECKING:
    import grpc

_PAGE = 500


class Checkpoints:
    """RegistryService, as clients need it.

    Every method raises `UnavailableError` while the registry cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(self, channel: Callable[[], grpc.aio.Channel], place: str = "") -> None:
        self._channel = channel
        self._failures = failures("registry", place)

    @property
    def _stub(self) -> pb_grpc.RegistryServiceAsyncStub:
        return pb_grpc.RegistryServiceStub(self._channel())

    async def models(self) -> AsyncGenerator[pb.Model, None]:
        """The models, by name."""
        request = pb.ListModelsRequest(page_size=_PAGE)
        with self._failures():
            async for model in pages(self._stub.ListModels, request, lambda r: r.models):
                yield model

    async def list(self, model: str) -> AsyncGenerator[pb.Version, None]:
        """The versions of a model, newest first; none of one that there is not.

        Args:
            model: its name, which is its job's id.
        """
        request = pb.ListVersionsRequest(model=model, page_size=_PAGE)
        with self._failures():
            async for version in pages(self._stub.ListVersions, request, lambda r: r.versions):
                yield version

    async def get(self, model: str, version: int | str = "latest") -> pb.Version:
        """Reads a version by number or alias.

        Args:
            model: its name, which is its job's id.
            version: the step after which it was published, or an alias such as `latest` or `best`.

        Raises:
            NotFoundError: there is no such model, version or alias.
        """
        request = (
            pb.GetVersionRequest(model=model, version=version)
            if isinstance(version, int)
            else pb.GetVersionRequest(model=model, alias=version)
        )
        with self._failures():
            return (await self._stub.GetVersion(request)).version

    async def record(self, model: str, version: int, metrics: Mapping[str, float]) -> None:
        """Adds an evaluation's numbers to a version; one that it has already is overwritten.

        Args:
            model: its name.
            version: its number.
            metrics: by name, such as `val/reward`; `retain` ranks by them.

        Raises:
            NotFoundError: there is no such version.
            InvalidArgumentError: a number is not finite.
        """
        request = pb.RecordEvaluationRequest(model=model, version=version, metrics=metrics)
        with self._failures():
            await self._stub.RecordEvaluation(request)

    async def retain(self, model: str, keep_last: int, keep_best: int, metric: str) -> None:
        """Deletes the versions that are neither among the newest nor the best by a metric.

        What has an alias or is in use stays, and the newest two that have state, from which a job
        goes on after a crash (one, with a `keep_last` of 1).

        Args:
            model: its name.
            keep_last: how many of the newest stay, at least 1.
            keep_best: how many of the best stay besides, from 0.
            metric: the number that ranks them, the highest first. A version without it does not
                rank.

        Raises:
            InvalidArgumentError: the rule keeps nothing, or a number is out of bounds.
        """
        request = pb.ApplyRetentionRequest(
            model=model, keep_last=keep_last, keep_best=keep_best, metric=metric
        )
        with self._failures():
            await self._stub.ApplyRetention(request)

    async def download(self, version: pb.Version, folder: Path, prefix: str = "") -> None:
        """Writes a version's files to a folder.

        Every digest is verified, a broken transfer goes on where it broke, and the folder appears
        whole or not at all.

        Args:
            version: as `get` and `list` give it.
            folder: must not exist, or be empty; those above it are made.
            prefix: only the files under this folder, which is taken off their paths; empty for
                all.

        Raises:
            NotFoundError: the version has nothing under `prefix`, or is gone.
            DataLossError: the bytes do not match the manifest.
            OSError: the folder cannot be written.
        """
        manifest = version.manifest
        if not any(file.path.startswith(prefix) for file in manifest.files):
            raise NotFoundError(f"{manifest.model}@{manifest.version} has no files in {prefix}")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as staging:
            pulled = Path(staging) / "version"
            with self._failures():
                await RegistryClient(self._channel()).pull(
                    manifest.model, manifest.version, pulled, only=[prefix] if prefix else ()
                )
            (pulled / prefix).rename(folder)
