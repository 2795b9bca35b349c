"""Which policies are served, under which weights, and by whom they are used."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from podium.core.errors import (
    REQUESTS_DID_NOT_END,
    WEIGHTS_NOT_EXCHANGED,
    FailedPreconditionError,
    PodiumError,
    UnavailableError,
)
from podium.core.tasks import cancel_and_wait
from podium.kit.telemetry import exemplar

from podium_inference.domain import metrics
from podium_inference.domain.demand import Demand, not_loaded
from podium_inference.domain.ports import Engine, Fetcher, VersionSource
from podium_inference.domain.requests import Requests
from podium_inference.domain.served import Served

logger = logging.getLogger(__name__)

BASE = ("", "base")
"""What requests call the base model."""
# Adapters that only requests have asked for; each takes its files and a place in the engine.
_MOST_ON_DEMAND = 64


def not_exchanged(why: str) -> UnavailableError:
    """WEIGHTS_NOT_EXCHANGED."""
    return UnavailableError(f"the weights cannot be exchanged: {why}", reason=WEIGHTS_NOT_EXCHANGED)


class PolicyPool:
    """The policies of one engine.

    Merged: one policy at a time; exchanging it waits for what runs and holds
    back what comes, or has what runs go on under the new weights. Adapter: many
    at once, each under a name of its own. What a request names and is not
    served is fetched first, within bounds: weights go forward only, and what
    was unloaded stays so.
    """

    def __init__(
        self,
        engine: Engine,
        source: VersionSource,
        fetcher: Fetcher,
        *,
        merged: bool,
        max_requests: int,
        load_timeout_s: float,
        on_change: Callable[[list[Served]], None] = lambda served: None,
    ) -> None:
        """Serves the base model; `on_change` is told what is served whenever that changes."""
        self._engine = engine
        self._source = source
        self._fetcher = fetcher
        self._merged = merged
        self.requests = Requests(max_requests)
        self._timeout = load_timeout_s
        self._on_change = on_change
        self._base = Served(job="", version=0)
        self._served: dict[tuple[str, int], Served] = {}
        self._loading = asyncio.Lock()
        self._demand = Demand(self._load_on_demand, load_timeout_s)
        self._open = asyncio.Event()
        self._open.set()
        self._open_to_named = asyncio.Event()
        """Whether those may begin, too, that cannot go on under another version."""
        self._open_to_named.set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._whole = True
        """Whether the engine's weights are those of a policy."""

    @property
    def merged(self) -> bool:
        """Whether the policy is merged into the engine's weights."""
        return self._merged

    def served(self) -> list[Served]:
        """What is served now: the base model, where it is, then jobs, newest version first."""
        base = [] if self._merged and (self._served or not self._whole) else [self._base]
        return base + sorted(self._served.values(), key=lambda s: (s.job, -s.version))

    @asynccontextmanager
    async def use(
        self, job: str, version: int | None, *, moves: bool = True
    ) -> AsyncIterator[Served]:
        """The policy for one generation, as it is when the block begins.

        It is not exchanged while the block runs, unless its job has weights change in flight; then
        it may be, for what names no version.

        Args:
            moves: False for what must be of one version all the same.

        Raises:
            NotFoundError: POLICY_NOT_LOADED, and it is not to be fetched.
            ResourceExhaustedError: QUEUE_FULL.
            UnavailableError: WEIGHTS_NOT_EXCHANGED, the weights were lost meanwhile.
            PodiumError: what `load` fails with.
        """
        moves = moves and self._merged and version is None
        with self.requests.counted():
            with metrics.WAITING.track_inprogress():
                served = await self._await(job, version, moves=moves)
            use = served.enter(moves=moves)
            try:
                with self.requests.inside():
                    yield served
            finally:
                Served.leave(use)
            if use.lost:
                raise not_exchanged("what it was sampled by is lost")

    async def load(
        self, job: str, version: int, keep_older: int, *, in_flight: bool = False
    ) -> tuple[Served, float, bool]:
        """Serves a version: what is served, seconds of pause, whether it was served before.

        Args:
            in_flight: what runs of the job is not waited for.

        Raises:
            NotFoundError: the registry lacks the version.
            FailedPreconditionError: BASE_MODEL_MISMATCH, BAD_ADAPTER, POOL_IN_USE.
            DataLossError: a digest does not match.
            UnavailableError: the registry or the engine is away, what runs does
                not end in time, or WEIGHTS_NOT_EXCHANGED.
        """
        async with self._loading:
            self._demand.allow(job, version)
            known = self._served.get((job, version))
            if known is not None:
                known.on_demand = False
                known.in_flight = in_flight
                return known, 0.0, True
            served, pause = await self._load_timed(job, version, in_flight=in_flight)
            if not self._merged:
                await self._drop_older(job, keep_older, in_flight=in_flight)
                self._changed()
            return served, pause, False

    async def want(self, job: str, version: int | None) -> None:
        """Has what a request will name served, if it is not.

        Raises:
            PodiumError: as `use`.
        """
        await self._await(job, version, moves=version is None)

    async def merged_job(self) -> str:
        """Of a merged pool, whose weights are merged in; empty for the base model's own."""
        await self._open.wait()
        return next((job for job, _ in self._served), "")

    async def _await(self, job: str, version: int | None, *, moves: bool) -> Served:
        """What a request names, when requests may go on."""
        await self._may_begin(moves)
        if self._find(job, version) is None and job not in BASE:
            await self._demand.fetch(job, version)
            await self._may_begin(moves)
        served = self._find(job, version)
        if served is None:
            raise not_loaded(job, version, "it went again")
        return served

    async def _may_begin(self, moves: bool) -> None:
        gates = (self._open,) if moves else (self._open, self._open_to_named)
        while closed := [gate for gate in gates if not gate.is_set()]:
            await closed[0].wait()

    async def _load_on_demand(self, job: str, version: int | None) -> None:
        """See `Demand`."""
        if version is None:
            version = (await self._source.get_version(job, "latest")).manifest.version
        # Whoever loads now may take its time, and whoever loaded may have had another wish.
        self._check_wanted(job, version)
        async with self._loading:
            self._check_wanted(job, version)
            if (job, version) in self._served:
                return
            in_flight = any(s.in_flight for (other, _), s in self._served.items() if other == job)
            served, _ = await self._load_timed(job, version, in_flight=in_flight)
            served.on_demand = True
            if not self._merged:
                await self._drop_unused(served)
                self._changed()
        logger.info("fetched what a request named", extra={"job": job, "version": version})

    def _check_wanted(self, job: str, version: int) -> None:
        """Raises NotFoundError (POLICY_NOT_LOADED) for what requests alone may not bring."""
        self._demand.check(job, version)
        for served in self._served.values() if self._merged else ():
            if served.job != job:
                raise not_loaded(job, version, f"{served.model_name} is merged into its weights")
            if served.version > version:
                raise not_loaded(job, version, f"it serves {served.model_name}, which is newer")

    async def _load_timed(self, job: str, version: int, *, in_flight: bool) -> tuple[Served, float]:
        began = time.monotonic()
        try:
            served, pause = await self._load(job, version, in_flight=in_flight)
        except PodiumError as error:
            metrics.LOAD_FAILURES.labels(error.reason).inc()
            raise
        metrics.LOAD_SECONDS.observe(time.monotonic() - began, exemplar())
        metrics.PAUSE_SECONDS.observe(pause, exemplar())
        return served, pause

    async def _load(self, job: str, version: int, *, in_flight: bool) -> tuple[Served, float]:
        others = {other for other, _ in self._served if other != job}
        if self._merged and others:
            raise FailedPreconditionError(
                f"this pool serves {min(others)!r} in merged mode",
                reason="POOL_IN_USE",
                metadata={"job": min(others)},
            )
        weights, held = await self._fetcher.fetch(job, version, self._weights_of)
        async with held:
            served = Served(job=job, version=version, weights=weights, in_flight=in_flight)
            pause = 0.0
            if self._merged:
                pause = await self._exchange(served)
            else:
                served.adapter = await self._engine.add_adapter(served.model_name, weights)
                self._served[job, version] = served
            served.held = held.pop_all()
        return served, pause

    def _weights_of(self, job: str, version: int) -> Path | None:
        served = self._served.get((job, version))
        return served.weights if served else None

    async def unload(self, job: str, version: int | None) -> None:
        """Stops serving a version, or all of a job's, once its requests have ended.

        Requests do not bring it back; `load` does.
        """
        async with self._loading:
            self._demand.forbid(job, version)
            doomed = [
                served
                for (name, number), served in self._served.items()
                if name == job and version in (None, number)
            ]
            if self._merged and doomed:
                await self._exchange(self._base)
            elif doomed:
                for served in doomed:
                    await self._remove(served)
                self._changed()

    async def close(self) -> None:
        """Gives back leases and files."""
        await self._demand.close()
        await cancel_and_wait(*self._retiring)
        for served in self._served.values():
            await served.held.aclose()
        self._served.clear()

    async def _exchange(self, new: Served) -> float:
        """Merged mode: exchanges the weights, when what must not move has ended."""
        old = next(iter(self._served.values()), self._base)
        # Of a merged pool all else is of the same job.
        in_flight = new.in_flight and bool(old.job)
        began = time.monotonic()
        try:
            if in_flight:
                self._open_to_named.clear()
                await self._bounded(old.movable.wait())
                began = time.monotonic()
            self._open.clear()
            if in_flight:
                async with self._engine.frozen():
                    await self._merge(new, old)
                    metrics.MOVED.inc(new.take_over(old))
            else:
                await self._bounded(old.idle.wait())
                await self._merge(new, old)
        finally:
            self._open.set()
            self._open_to_named.set()
            self._changed()
        await old.held.aclose()
        return time.monotonic() - began

    async def _merge(self, new: Served, old: Served) -> None:
        """Puts weights into the engine; those of before where that fails.

        Raises:
            UnavailableError: WEIGHTS_NOT_EXCHANGED.
        """
        # From here on the old weights are not whole, whatever happens.
        self._served.clear()
        self._whole = False
        try:
            await self._put(new)
        except Exception as error:
            logger.exception("the weights cannot be exchanged")
            try:
                await self._put(old)
            except Exception:
                logger.exception("nor can those of before be put back")
                for use in old.uses:
                    use.lost = True
                await old.held.aclose()
                # An engine that has died says so to what runs by itself.
                with suppress(Exception):
                    await self._engine.drop()
            raise not_exchanged(str(error)) from error

    async def _put(self, served: Served) -> None:
        await self._engine.merge(served.weights, served.version)
        self._whole = True
        if served.job:
            self._served[served.job, served.version] = served

    async def _drop_older(self, job: str, keep: int, *, in_flight: bool) -> None:
        versions = sorted((v for j, v in self._served if j == job), reverse=True)
        for version in versions[keep + 1 :]:
            if in_flight:
                self._retire(self._served.pop((job, version)))
            else:
                await self._remove(self._served[job, version])

    def _retire(self, served: Served) -> None:
        """Takes an adapter out when its last request has ended, which nobody waits for."""

        async def retire() -> None:
            async with served.held:
                await served.idle.wait()
                try:
                    await self._take_out(served)
                except Exception:
                    logger.exception("an adapter stays", extra={"policy": served.model_name})

        task = asyncio.create_task(retire(), name=f"retire-{served.model_name}")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _drop_unused(self, keep: Served) -> None:
        """Of what only requests have brought, the longest unused go."""
        idle = [s for s in self._served.values() if s.on_demand and not s.running and s is not keep]
        idle.sort(key=lambda s: s.last_used)
        for served in idle[: max(0, len(idle) + 1 - _MOST_ON_DEMAND)]:
            await self._remove(served)

    async def _remove(self, served: Served) -> None:
        del self._served[served.job, served.version]
        await self._bounded(served.idle.wait())
        async with served.held:
            await self._take_out(served)

    async def _take_out(self, served: Served) -> None:
        assert served.adapter is not None
        await self._engine.remove_adapter(served.adapter)

    async def _bounded(self, work: Awaitable[object]) -> None:
        try:
            await asyncio.wait_for(work, self._timeout)
        except TimeoutError:
            raise UnavailableError(
                f"running requests did not end within {self._timeout:g} s",
                reason=REQUESTS_DID_NOT_END,
            ) from None

    def _find(self, job: str, version: int | None) -> Served | None:
        if job in BASE:
            if self._merged and (self._served or not self._whole):
                raise not_loaded(job, version, "another policy is merged into its weights")
            return self._base
        if version is not None:
            return self._served.get((job, version))
        numbers = [number for name, number in self._served if name == job]
        return self._served[job, max(numbers)] if numbers else None

    def _changed(self) -> None:
        metrics.POLICIES.set(len(self._served))
        metrics.NEWEST_VERSION.clear()
        for job, version in sorted(self._served):
            metrics.NEWEST_VERSION.labels(job).set(version)
        self._on_change(self.served())
