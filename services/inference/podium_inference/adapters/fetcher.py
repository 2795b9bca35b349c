"""A version's files from the registry: leased, verified and fit for the engine."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from podium.core.errors import DataLossError, FailedPreconditionError
from podium.kit.deltas import FOLDER, apply_delta
from podium.registry.v1 import registry_service_pb2 as registry_pb

from podium_inference.domain.ports import VersionSource, WeightsOf

logger = logging.getLogger(__name__)


class RegistryFetcher:
    """`Fetcher`, from the registry."""

    def __init__(
        self,
        source: VersionSource,
        lease: Callable[[str, int], object],
        check: Callable[[Path], Awaitable[None]],
        spread: Callable[[Path], AbstractAsyncContextManager[None]],
        *,
        merged: bool,
        base_digest: str,
        folder: Path,
    ) -> None:
        """`lease(job, version)` is an async context manager that keeps a version alive; `check`
        and `spread` are the engine's. What lies in `folder` is deleted."""
        self._source = source
        self._lease = lease
        self._check = check
        self._spread = spread
        self._merged = merged
        self._base_digest = base_digest
        self._folder = folder
        self._fetches = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    async def fetch(
        self, job: str, version: int, weights_of: WeightsOf
    ) -> tuple[Path, AsyncExitStack]:
        """The folder of its adapter or whole weights, and what gives back files and lease.

        Raises:
            NotFoundError: the registry lacks the version.
            FailedPreconditionError: BASE_MODEL_MISMATCH, WEIGHT_MODE, BAD_ADAPTER, BAD_WEIGHTS.
            DataLossError: a digest does not match.
            UnavailableError: the registry is away; NODE_FILES, a node cannot store them.
        """
        self._fetches += 1
        # Never reused, so that nothing can mistake old files for new ones.
        folder = self._folder / f"{job}-{version}-{self._fetches}"
        async with AsyncExitStack() as held:
            held.callback(shutil.rmtree, folder, ignore_errors=True)
            await held.enter_async_context(self._lease(job, version))  # type: ignore[arg-type]
            found = await self._source.get_version(job, version)
            digest = found.manifest.base_model_digest
            if digest and digest != self._base_digest:
                raise FailedPreconditionError(
                    f"{job}@{version} was trained on another base model than this pool serves",
                    reason="BASE_MODEL_MISMATCH",
                    metadata={"trained_on": digest, "served": self._base_digest},
                )
            full = found.manifest.kind == registry_pb.VERSION_KIND_FULL
            if full and not self._merged:
                raise FailedPreconditionError(
                    f"{job}@{version} has whole weights, which only a pool in merged mode serves",
                    reason="WEIGHT_MODE",
                )
            if full:
                weights = await self._fetch_whole(found.manifest, folder, weights_of)
            else:
                await self._source.pull(job, version, folder, only=("adapter/",))
                weights = folder / "adapter"
            await self._check(weights)
            await held.enter_async_context(self._spread(weights))
            return weights, held.pop_all()

    async def _fetch_whole(
        self, manifest: registry_pb.Manifest, folder: Path, weights_of: WeightsOf
    ) -> Path:
        """Whole weights: the delta alone where its parent is served, else all of them."""
        job, version = manifest.model, manifest.version
        parent = manifest.parents[0].version if manifest.parents else None
        before = weights_of(job, parent) if parent is not None else None
        await asyncio.to_thread(folder.mkdir)
        paths = [file.path for file in manifest.files if file.path.startswith(FOLDER)]
        if before and paths:
            changes = folder / "changes"
            await self._source.pull(job, version, changes, only=(FOLDER,))
            try:
                deltas = [changes / path for path in paths]
                await asyncio.to_thread(apply_delta, before, deltas, folder / "model")
                return folder / "model"
            except DataLossError as error:
                logger.warning("fetching all weights instead", extra={"reason": error.message})
        await self._source.pull(job, version, folder / "whole", only=("model/",))
        return folder / "whole" / "model"
