"""Keeps jobs as TrainingJob resources say, and tells the resources how they fare."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Protocol

from podium.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PodiumError,
)
from podium.core.tasks import cancel_and_wait
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit.kubernetes.api import ClusterApi, Resource, Selection
from podium.kit.kubernetes.reflector import Reflector
from podium.sdk.jobs import TERMINAL
from podium.types.v1 import spec_pb2

from podium_gitops.domain.resource import (
    FINALIZER,
    Manifest,
    condition,
    digest,
    is_paused,
    job_status,
    parse,
    said,
)

logger = logging.getLogger(__name__)

TRAINING_JOBS = Resource("podium.dev/v1alpha1", "trainingjobs")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACTIVE = (pb.JOB_STATE_QUEUED, pb.JOB_STATE_RUNNING)


class Jobs(Protocol):
    """What is needed of `podium.sdk`'s jobs."""

    async def create(
        self, spec: spec_pb2.JobSpec, *, job_id: str = "", request_id: str = ""
    ) -> pb.Job:
        """Creates a job, or returns that of the same request."""

    def list(self) -> AsyncIterator[pb.Job]:
        """Every job."""

    async def cancel(self, job_id: str) -> pb.Job:
        """Stops a job for good."""

    async def pause(self, job_id: str) -> pb.Job:
        """Stops a job after its step."""

    async def resume(self, job_id: str) -> pb.Job:
        """Lets a job go on."""


class Operator:
    """One for a namespace. What it does is idempotent: two of them agree."""

    def __init__(self, api: ClusterApi, jobs: Jobs, poll_seconds: float) -> None:
        """`poll_seconds`: between two looks at all jobs, unless a resource changes."""
        self._api = api
        self._jobs = jobs
        self._poll = poll_seconds
        self._resources: dict[str, Manifest] = {}
        self._news = asyncio.Event()
        self._refused: dict[str, int] = {}
        self._reflector = Reflector(api, Selection(TRAINING_JOBS), self._set_all, self._change)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watches and settles inside the block."""
        tasks = [asyncio.create_task(self._reflector.run()), asyncio.create_task(self._run())]
        try:
            yield
        finally:
            await cancel_and_wait(*tasks)

    async def _run(self) -> None:
        await self._reflector.listed.wait()
        while True:
            self._news.clear()
            try:
                await self._settle_all()
            except PodiumError as error:
                logger.warning("the controller does not answer", extra={"error": error.message})
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._news.wait()

    async def _settle_all(self) -> None:
        if not self._resources:
            return
        jobs = {job.id: job async for job in self._jobs.list()}
        for name, manifest in list(self._resources.items()):
            try:
                await self._settle(name, manifest, jobs)
            except NotFoundError:
                continue
            except PodiumError as error:
                logger.warning(
                    "a TrainingJob is left for later",
                    extra={"resource": name, "error": error.message},
                )

    async def _settle(self, name: str, manifest: Manifest, jobs: Mapping[str, pb.Job]) -> None:
        status = manifest.get("status") or {}
        job = jobs.get(status["jobId"]) if "jobId" in status else None
        if manifest["metadata"].get("deletionTimestamp"):
            await self._let_go(name, manifest, job)
            return
        if "jobId" not in status:
            await self._create(name, manifest)
        elif job is None:
            await self._tell(manifest, False, "JOB_DELETED", "the job is there no more", status)
        elif status.get("specDigest") != digest(manifest):
            text = "spec.job has changed, and a job's specification does not; delete the resource"
            await self._tell(manifest, False, "SPEC_CHANGED", text, status | job_status(job))
        else:
            job = await self._steer(manifest, job)
            own = {"specDigest": status["specDigest"]}
            await self._tell(manifest, True, "CREATED", "the job is there", own | job_status(job))

    async def _create(self, name: str, manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        if self._refused.get(metadata["uid"]) == metadata.get("generation", 0):
            return
        spec, violations = parse(manifest)
        if not _LABEL.fullmatch(name):
            text = f"got {name!r}; allowed is a DNS label, as it names the job"
            await self._refuse(manifest, "INVALID_ARGUMENT", f"metadata.name: {text}")
            return
        if violations:
            await self._refuse(manifest, "INVALID_ARGUMENT", said(violations))
            return
        if FINALIZER not in (metadata.get("finalizers") or []):
            # First: a job that is created is cancelled when its resource goes.
            await self._set_finalizers(name, [*(metadata.get("finalizers") or []), FINALIZER])
        try:
            job = await self._jobs.create(spec, job_id=name, request_id=metadata["uid"])
        except (InvalidArgumentError, AlreadyExistsError) as error:
            await self._refuse(manifest, error.reason, error.message)
            return
        except PodiumError as error:
            await self._tell(manifest, False, error.reason, error.message, {})
            return
        own = {"specDigest": digest(manifest)}
        await self._tell(manifest, True, "CREATED", "the job is there", own | job_status(job))

    async def _steer(self, manifest: Manifest, job: pb.Job) -> pb.Job:
        """Pauses it, or lets it go on; a job that paused by itself is left to its client."""
        if is_paused(manifest) and job.state in _ACTIVE:
            return await self._jobs.pause(job.id)
        resting = job.state == pb.JOB_STATE_PAUSED and job.phase != "idle"
        if not is_paused(manifest) and resting:
            return await self._jobs.resume(job.id)
        return job

    async def _let_go(self, name: str, manifest: Manifest, job: pb.Job | None) -> None:
        """Cancels the job, and once it has ended lets the resource go; checkpoints stay."""
        if job is not None and job.state not in TERMINAL:
            await self._jobs.cancel(job.id)
            return
        held = manifest["metadata"].get("finalizers") or []
        if FINALIZER in held:
            await self._set_finalizers(name, [each for each in held if each != FINALIZER])

    async def _refuse(self, manifest: Manifest, reason: str, message: str) -> None:
        """Says so, and waits for the resource to change."""
        await self._tell(manifest, False, reason, message, {})
        metadata = manifest["metadata"]
        self._refused[metadata["uid"]] = metadata.get("generation", 0)

    async def _tell(
        self, manifest: Manifest, accepted: bool, reason: str, message: str, status: Manifest
    ) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found = condition(manifest, accepted=accepted, reason=reason, message=message, now=now)
        wanted = {**status, "conditions": [found]}
        before = manifest.get("status") or {}
        if wanted == before:
            return
        # A merge patch keeps what it does not name.
        gone = dict.fromkeys(before.keys() - wanted.keys())
        name = manifest["metadata"]["name"]
        patch = {"status": {**gone, **wanted}}
        changed = await self._api.patch(TRAINING_JOBS, name, patch, "status")
        self._change("MODIFIED", changed)

    async def _set_finalizers(self, name: str, finalizers: list[str]) -> None:
        await self._api.patch(TRAINING_JOBS, name, {"metadata": {"finalizers": finalizers}})

    def _set_all(self, items: list[Manifest]) -> None:
        self._resources = {each["metadata"]["name"]: each for each in items}
        self._news.set()

    def _change(self, kind: str, item: Manifest) -> None:
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self._resources.pop(name, None)
            self._refused.pop(item["metadata"]["uid"], None)
            return
        before = self._resources.get(name)
        self._resources[name] = item
        # Its own writing is no news.
        if before is None or _asked(before) != _asked(item):
            self._news.set()


def _asked(manifest: Manifest) -> tuple[object, object]:
    metadata = manifest["metadata"]
    return metadata.get("generation"), metadata.get("deletionTimestamp")
