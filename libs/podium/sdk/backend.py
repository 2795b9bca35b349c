"""A Podium installation as the place where models train: `podium.training.backend.Backend`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from podium.core.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    PodiumError,
    UnavailableError,
)
from podium.core.tasks import cancel_and_wait
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.kit.rpc import retry_unavailable
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.jobs import TERMINAL, Jobs
from podium.sdk.policies import Policies
from podium.sdk.sessions import Sessions
from podium.training.backend import TrainResult
from podium.types.v1 import spec_pb2, trajectory_pb2

logger = logging.getLogger(__name__)

BASE_URL = "PODIUM_OPENAI_BASE_URL"
"""Environment variable: where the OpenAI API is, when that is not at the inference service."""

_PATIENCE_SECONDS = 600.0
_TAKE_SECONDS = 30.0
_POLL_SECONDS = 0.25
_TELL_SECONDS = 2.0


class Services(Protocol):
    """What a backend uses of an installation's client."""

    jobs: Jobs
    sessions: Sessions
    policies: Policies
    checkpoints: Checkpoints

    async def openai_token(self) -> str:
        """The bearer token of the OpenAI API; empty where it asks for none."""
        ...

    async def openai_address(self, port: int) -> str:
        """`host:port` of the OpenAI API, given the port that inference says."""
        ...


class RemoteBackend:
    """See `Backend`; the methods say only what is particular here."""

    def __init__(self, client: Services) -> None:
        self._client = client
        self._seen: dict[str, int] = {}
        """The last event of each job that was looked at."""
        self._logged_waits: dict[str, str] = {}
        """What each job waits for, as it was told last."""

    async def register(self, name: str, spec: spec_pb2.JobSpec) -> str:
        """Makes the job under the model's name, or goes on with the one that there is.

        What it waits for meanwhile is logged, as a warning; from then on the controller is told
        that its client lives.

        Raises:
            AlreadyExistsError: the name is another kind of job's, or another base model's.
            FailedPreconditionError: its job has ended.
        """
        try:
            job = await self._client.jobs.get(name)
        except NotFoundError:
            try:
                job = await self._client.jobs.create(spec, job_id=name)
            except AlreadyExistsError as error:
                if error.reason != "JOB_EXISTS":
                    raise
                job = await self._client.jobs.get(name)
        _check_same(job, spec)
        await self._client.sessions.drive(name)
        await self._served(name)
        return await self._base_url()

    async def step(self, name: str) -> int:
        """See `Backend`."""
        return (await self._client.jobs.get(name)).completed_steps

    async def submit(
        self, name: str, groups: Sequence[trajectory_pb2.Group], request_id: str
    ) -> int:
        """See `Backend`; a controller that is away is waited for."""
        return await self._client.sessions.submit(name, groups, request_id=request_id)

    async def trained(self, name: str, step: int) -> TrainResult:
        """See `Backend`.

        Raises:
            FailedPreconditionError: the job ended before that step.
        """
        job = await retry_unavailable(
            lambda: self._client.jobs.get(name), timeout_s=_PATIENCE_SECONDS
        )
        if job.completed_steps >= step:
            return await self._result(name, step)
        telling = asyncio.create_task(self._tell_waits(name))
        try:
            after = self._seen.get(name, 0)
            async for update in self._client.jobs.watch(name, after_sequence=after):
                self._seen[name] = update.event.sequence
                if update.HasField("step") and update.step.number == step:
                    return TrainResult(step, dict(update.step.metrics))
        finally:
            await cancel_and_wait(telling)
        raise _ended(await self._client.jobs.get(name))

    async def _tell_waits(self, name: str) -> None:
        """Until it is cancelled: what the job waits for, when that changes."""
        while True:
            try:
                self._tell(await self._client.jobs.get(name))
            except PodiumError:
                logger.debug("what job %s waits for is not known", name, exc_info=True)
            await asyncio.sleep(_TELL_SECONDS)

    def _tell(self, job: jobs_pb.Job) -> None:
        waits = job.wait_message
        if waits and waits != self._logged_waits.get(job.id):
            state = jobs_pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
            logger.warning("job %s is %s and waits (%s): %s", job.id, state, job.wait_reason, waits)
        elif not waits and job.id in self._logged_waits:
            logger.warning("job %s waits no longer", job.id)
        if waits:
            self._logged_waits[job.id] = waits
        else:
            self._logged_waits.pop(job.id, None)

    async def api_token(self) -> str:
        """See `Backend`."""
        return await self._client.openai_token()

    async def take(self, key: str) -> list[inference_pb.CapturedCall]:
        """See `Backend`."""
        try:
            return await retry_unavailable(
                lambda: self._client.policies.take_capture(key), timeout_s=_TAKE_SECONDS
            )
        except NotFoundError:
            return []

    async def demonstrate(
        self, request: inference_pb.RenderDemonstrationRequest
    ) -> inference_pb.RenderDemonstrationResponse:
        """See `Backend`."""
        return await retry_unavailable(
            lambda: self._client.policies.demonstrate(request), timeout_s=_PATIENCE_SECONDS
        )

    async def finish(self, name: str) -> None:
        """See `Backend`."""
        await self._client.sessions.finish(name)
        await self._client.jobs.wait(name)

    async def record(self, name: str, step: int, metrics: Mapping[str, float]) -> None:
        """See `Backend`."""
        await self._client.checkpoints.record(name, step, metrics)

    def checkpoints(self, name: str) -> AsyncGenerator[registry_pb.Version, None]:
        """See `Backend`."""
        return self._client.checkpoints.list(name)

    async def version(self, name: str, which: int | str) -> registry_pb.Version:
        """See `Backend`."""
        return await self._client.checkpoints.get(name, which)

    async def download(self, name: str, step: int, folder: Path) -> None:
        """See `Backend`."""
        version = await self._client.checkpoints.get(name, step)
        full = version.manifest.kind == registry_pb.VERSION_KIND_FULL
        prefix = "model/" if full else "adapter/"
        await self._client.checkpoints.download(version, folder, prefix)

    async def retain(self, name: str, keep_last: int, keep_best: int, metric: str) -> None:
        """See `Backend`."""
        await self._client.checkpoints.retain(name, keep_last, keep_best, metric)

    async def _result(self, name: str, step: int) -> TrainResult:
        async for each in self._client.jobs.steps(name):
            if each.number == step:
                return TrainResult(step, dict(each.metrics))
        raise NotFoundError(f"there is no step {step} of {name}")

    async def _served(self, name: str) -> None:
        """Waits until the pool serves the job's newest version.

        Raises:
            FailedPreconditionError: the job has ended, or people have paused it.
            DeadlineExceededError: it takes too long.
        """
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not await self._is_served(name):  # noqa: ASYNC110 - no service tells it
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            waits = f"; it waits: {self._logged_waits[name]}" if name in self._logged_waits else ""
            raise DeadlineExceededError(
                f"{name} is not served after {_PATIENCE_SECONDS:g} seconds{waits}",
                reason="NOT_SERVED",
            ) from None

    async def _is_served(self, name: str) -> bool:
        try:
            job = await self._client.jobs.get(name)
            self._tell(job)
            if job.state in TERMINAL:
                raise _ended(job)
            if job.state == jobs_pb.JOB_STATE_PAUSED:
                if job.phase != "idle":
                    raise FailedPreconditionError(
                        f"job {name} is paused; `podium job resume {name}` lets it go on",
                        reason="JOB_PAUSED",
                    )
                await self._client.jobs.resume(name)
            if job.state != jobs_pb.JOB_STATE_RUNNING or job.phase != "collect":
                return False
            served = [policy.version async for policy in self._client.policies.list(name)]
        except UnavailableError:
            return False
        return job.completed_steps in served

    async def _base_url(self) -> str:
        given = os.environ.get(BASE_URL, "")
        if given:
            return given
        engine = await self._client.policies.engine()
        return f"http://{await self._client.openai_address(engine.http_port)}/v1"


def _check_same(job: jobs_pb.Job, spec: spec_pb2.JobSpec) -> None:
    if not job.spec.HasField("client"):
        raise AlreadyExistsError(
            f"job {job.id} takes its groups from an environment; choose another name",
            reason="NOT_CLIENT_DRIVEN",
        )
    if job.spec.base_model != spec.base_model:
        raise AlreadyExistsError(
            f"model {job.id} was begun from {job.spec.base_model!r}, not {spec.base_model!r};"
            " choose another name",
            reason="BASE_MODEL_DIFFERS",
        )


def _ended(job: jobs_pb.Job) -> FailedPreconditionError:
    state = jobs_pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
    why = f": {job.failure_message}" if job.failure_message else ""
    return FailedPreconditionError(
        f"job {job.id} is {state}{why}",
        reason=job.failure_reason or "JOB_ENDED",
        metadata={"job_id": job.id, "state": state},
    )
