"""Which policies are served, under which weights, and by whom they are used."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from podium.core.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    PodiumError,
    ResourceExhaustedError,
    UnavailableError,
)
from podium.deltas import FOLDER, apply_delta
from podium.registry.v1 import registry_service_pb2 as registry_pb

from podium_inference import metrics
from podium_inference.engine import Engine

logger = logging.getLogger(__name__)


class Source(Protocol):
    """Where versions come from: the registry."""

    async def pull(
        self, model: str, version: int | str, destination: Path, *, only: tuple[str, ...] = ()
    ) -> registry_pb.Version:
        """Fetches a version into a folder, verified."""
        ...

    async def get_version(self, model: str, version: int | str) -> registry_pb.Version:
        """A version's manifest."""
        ...


@dataclass
class Served:
    """A policy version that requests may use; the base model has an empty job."""

    job: str
    version: int
    adapter: object | None = None
    weights: Path | None = None
    """The folder of its adapter or whole weights; None for the base model."""
    load_time: float = field(default_factory=time.time)
    running: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    held: AsyncExitStack = field(default_factory=AsyncExitStack)
    """The lease and the files, given back when it is no longer served."""

    def __post_init__(self) -> None:
        self.idle.set()

    @property
    def model_name(self) -> str:
        """The name on the OpenAI API; empty for the base model."""
        return f"{self.job}@{self.version}" if self.job else ""


class Pool:
    """The policies of one engine.

    Merged: one policy at a time; exchanging it waits for what runs and holds
    back what comes. Adapter: many at once, each under a name of its own.
    """

    def __init__(
        self,
        engine: Engine,
        source: Source,
        lease: Callable[[str, int], object],
        *,
        merged: bool,
        base_digest: str,
        folder: Path,
        max_requests: int,
        load_timeout_s: float,
        on_change: Callable[[list[Served]], None] = lambda served: None,
    ) -> None:
        """`lease(job, version)` is an async context manager that keeps a version alive."""
        self._engine = engine
        self._source = source
        self._lease = lease
        self._merged = merged
        self._base_digest = base_digest
        self._folder = folder
        self._max_requests = max_requests
        self._timeout = load_timeout_s
        self._on_change = on_change
        self._base = Served(job="", version=0)
        self._served: dict[tuple[str, int], Served] = {}
        self._loading = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._whole = True
        """Whether the engine's weights are those of a policy."""
        self._requests = 0
        self._fetches = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    @property
    def merged(self) -> bool:
        """Whether the policy is merged into the engine's weights."""
        return self._merged

    def served(self) -> list[Served]:
        """What is served now: the base model, where it is, then jobs, newest version first."""
        base = [] if self._merged and (self._served or not self._whole) else [self._base]
        return base + sorted(self._served.values(), key=lambda s: (s.job, -s.version))

    @asynccontextmanager
    async def use(self, job: str, version: int | None) -> AsyncIterator[Served]:
        """The policy for one generation, kept from being exchanged while the block runs.

        Raises:
            NotFoundError: POLICY_NOT_LOADED.
            ResourceExhaustedError: QUEUE_FULL.
        """
        if self._requests >= self._max_requests:
            raise ResourceExhaustedError(
                f"{self._requests} requests are running or waiting", reason="QUEUE_FULL"
            )
        self._requests += 1
        try:
            with metrics.WAITING.track_inprogress():
                await self._open.wait()
            served = self._find(job, version)
            served.running += 1
            served.idle.clear()
            metrics.RUNNING.inc()
            try:
                yield served
            finally:
                metrics.RUNNING.dec()
                served.running -= 1
                if served.running == 0:
                    served.idle.set()
        finally:
            self._requests -= 1

    async def load(self, job: str, version: int, keep_older: int) -> tuple[Served, float, bool]:
        """Serves a version: what is served, seconds of pause, whether it was served before.

        Raises:
            NotFoundError: the registry lacks the version.
            FailedPreconditionError: BASE_MODEL_MISMATCH, BAD_ADAPTER, POOL_IN_USE.
            DataLossError: a digest does not match.
            UnavailableError: the registry or the engine is away, or what runs
                does not end in time.
        """
        async with self._loading:
            known = self._served.get((job, version))
            if known is not None:
                return known, 0.0, True
            began = time.monotonic()
            try:
                served, pause = await self._load(job, version)
            except PodiumError as error:
                metrics.LOAD_FAILURES.labels(error.reason).inc()
                raise
            metrics.LOAD_SECONDS.observe(time.monotonic() - began)
            metrics.PAUSE_SECONDS.observe(pause)
            if not self._merged:
                await self._drop_older(job, keep_older)
                self._changed()
            return served, pause, False

    async def _load(self, job: str, version: int) -> tuple[Served, float]:
        others = {other for other, _ in self._served if other != job}
        if self._merged and others:
            raise FailedPreconditionError(
                f"this pool serves {min(others)!r} in merged mode",
                reason="POOL_IN_USE",
                metadata={"job": min(others)},
            )
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
                weights = await self._fetch_whole(found.manifest, folder)
            else:
                await self._source.pull(job, version, folder, only=("adapter/",))
                weights = folder / "adapter"
            await self._engine.check(weights)
            served = Served(job=job, version=version, weights=weights)
            pause = 0.0
            if self._merged:
                pause = await self._exchange(weights, served)
            else:
                served.adapter = await self._engine.add_adapter(served.model_name, weights)
                self._served[job, version] = served
            served.held = held.pop_all()
        return served, pause

    async def _fetch_whole(self, manifest: registry_pb.Manifest, folder: Path) -> Path:
        """Whole weights: the delta alone where its parent is served, else all of them."""
        job, version = manifest.model, manifest.version
        parent = manifest.parents[0].version if manifest.parents else None
        before = self._served.get((job, parent)) if parent is not None else None
        await asyncio.to_thread(folder.mkdir)
        paths = [file.path for file in manifest.files if file.path.startswith(FOLDER)]
        if before and before.weights and paths:
            changes = folder / "changes"
            await self._source.pull(job, version, changes, only=(FOLDER,))
            try:
                deltas = [changes / path for path in paths]
                await asyncio.to_thread(apply_delta, before.weights, deltas, folder / "model")
                return folder / "model"
            except DataLossError as error:
                logger.warning("fetching all weights instead", extra={"reason": error.message})
        await self._source.pull(job, version, folder / "whole", only=("model/",))
        return folder / "whole" / "model"

    async def unload(self, job: str, version: int | None) -> None:
        """Stops serving a version, or all of a job's, once its requests have ended."""
        async with self._loading:
            doomed = [
                served
                for (name, number), served in self._served.items()
                if name == job and version in (None, number)
            ]
            if self._merged and doomed:
                await self._exchange(None, None)
            elif doomed:
                for served in doomed:
                    await self._remove(served)
                self._changed()

    async def close(self) -> None:
        """Gives back leases and files."""
        for served in self._served.values():
            await served.held.aclose()
        self._served.clear()

    async def _exchange(self, weights: Path | None, new: Served | None) -> float:
        """Merged mode: waits for what runs, exchanges the weights, goes on."""
        began = time.monotonic()
        self._open.clear()
        try:
            old = list(self._served.values())
            await self._bounded(asyncio.gather(*(s.idle.wait() for s in (self._base, *old))))
            # From here on the old weights are not whole, whatever happens.
            self._served.clear()
            self._whole = False
            await self._engine.merge(weights)
            self._whole = True
            if new is not None:
                self._served[new.job, new.version] = new
        finally:
            self._open.set()
            self._changed()
        for served in old:
            await served.held.aclose()
        return time.monotonic() - began

    async def _drop_older(self, job: str, keep: int) -> None:
        versions = sorted((v for j, v in self._served if j == job), reverse=True)
        for version in versions[keep + 1 :]:
            await self._remove(self._served[job, version])

    async def _remove(self, served: Served) -> None:
        del self._served[served.job, served.version]
        await self._bounded(served.idle.wait())
        assert served.adapter is not None
        await self._engine.remove_adapter(served.adapter)
        await served.held.aclose()

    async def _bounded(self, work: Awaitable[object]) -> None:
        try:
            await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            raise UnavailableError(
                f"running requests did not end within {self._timeout:g} s",
                reason="REQUESTS_DID_NOT_END",
            ) from None

    def _find(self, job: str, version: int | None) -> Served:
        if job in ("", "base"):
            if self._whole and not (self._merged and self._served):
                return self._base
        elif version is not None:
            if (job, version) in self._served:
                return self._served[job, version]
        else:
            numbers = [number for name, number in self._served if name == job]
            if numbers:
                return self._served[job, max(numbers)]
        wanted = "the base model" if job in ("", "base") else job
        if version is not None:
            wanted = f"{job}@{version}"
        raise NotFoundError(
            f"{wanted} is not loaded in this pool",
            reason="POLICY_NOT_LOADED",
            metadata={"policy": wanted},
        )

    def _changed(self) -> None:
        metrics.POLICIES.set(len(self._served))
        metrics.NEWEST_VERSION.clear()
        for job, version in sorted(self._served):
            metrics.NEWEST_VERSION.labels(job).set(version)
        self._on_change(self.served())
