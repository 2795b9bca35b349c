"""The services of the installation, called with the token of whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import grpc
from podium.core.errors import (
    DeadlineExceededError,
    NotFoundError,
    PodiumError,
)
from podium.jobs.v1 import evaluation_service_pb2_grpc as evaluations_grpc
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.kit.rpc import connect, rpc_errors
from podium.kit.rpc.members import Members
from podium.registry.v1 import registry_service_pb2_grpc as registry_grpc
from podium.rollout.v1 import rollout_service_pb2 as rollout
from podium.rollout.v1 import rollout_service_pb2_grpc as rollout_grpc
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.jobs import Jobs
from podium.sdk.policies import Policies

from podium_console.adapters import caller
from podium_console.adapters.comparisons import Comparisons
from podium_console.adapters.history import JobHistory
from podium_console.adapters.methods import CONTROLLER, REGISTRY
from podium_console.domain import views
from podium_console.domain.status import Overview, PoolState, RolloutWorker
from podium_console.settings import Settings

T = TypeVar("T")

_COUNTED_JOBS = 200
_ASKED_JOBS = 50
_CHECK_SECONDS = 3.0


class Installation:
    """Controller, registry, pools and rollout workers."""

    def __init__(self, settings: Settings) -> None:
        """Connects to nothing yet.

        Raises:
            InvalidArgumentError: an address or a certificate's file is wrong.
        """
        tls = settings.tls()

        def dial(address: str, server_name: str) -> grpc.aio.Channel:
            return connect(
                address,
                default_timeout=settings.call_seconds,
                token=caller.token,
                tls=tls,
                server_name=server_name,
                max_message_bytes=settings.max_message_bytes,
                direct=True,
            )

        self._controller = Members(settings.controller_address, dial)
        self._rollout = Members(settings.rollout_address, dial)
        self._registry = dial(settings.registry_address, "")
        self._pools = {name: dial(address, "") for name, address in settings.pool_addresses.items()}
        self.jobs = Jobs(lambda: self._controller.whole)
        self.history = JobHistory(lambda: self.job_stub)
        self.comparisons = Comparisons(lambda: self.evaluation_stub)
        self.checkpoints = Checkpoints(lambda: self._registry)

    def channel(self, peer: str) -> grpc.aio.Channel:
        """To the controller, balanced over its replicas, or to the registry."""
        return {CONTROLLER: self._controller.whole, REGISTRY: self._registry}[peer]

    @property
    def job_stub(self) -> jobs_grpc.JobServiceAsyncStub:
        """For pages by token, which the SDK hides."""
        return jobs_grpc.JobServiceStub(self._controller.whole)

    @property
    def evaluation_stub(self) -> evaluations_grpc.EvaluationServiceAsyncStub:
        """As `job_stub`."""
        return evaluations_grpc.EvaluationServiceStub(self._controller.whole)

    @property
    def registry_stub(self) -> registry_grpc.RegistryServiceAsyncStub:
        """As `job_stub`."""
        return registry_grpc.RegistryServiceStub(self._registry)

    @property
    def pools(self) -> Sequence[str]:
        """The pools' names."""
        return list(self._pools)

    def policies(self, pool: str) -> Policies:
        """One pool.

        Raises:
            NotFoundError: there is none of this name.
        """
        if pool not in self._pools:
            raise NotFoundError(
                f"there is no pool {pool[:80]!r}; there are {', '.join(self._pools)}"
            )
        return Policies(lambda: self._pools[pool])

    async def overview(self) -> Overview:
        """What goes on now.

        Raises:
            PodiumError: the controller does not say; of others the overview itself tells.
        """
        found, workers, pools = await asyncio.gather(
            self._live_jobs(), self._workers(), asyncio.gather(*map(self.pool_state, self._pools))
        )
        return Overview(found[0], workers, pools, more_jobs=found[1])

    async def job(self, job_id: str) -> jobs.Job:
        """A job; with the counts of its episodes, which one replica of the controller alone has.

        Raises:
            PodiumError: as GetJob.
        """
        found = await self.jobs.get(job_id)
        if found.state in views.ENDED or found.HasField("episodes_running"):
            return found
        channels = await self._controller.each()
        if len(channels) < 2:
            return found
        answers = await asyncio.gather(
            *(self._get_job(channel, job_id) for channel in channels.values())
        )
        return next((job for job in answers if job and job.HasField("episodes_running")), found)

    async def pool_state(self, name: str) -> PoolState:
        """What a pool is and serves, or why it does not say."""
        policies = self.policies(name)
        try:
            async with _patience(f"the pool {name}"):
                engine = await policies.engine()
                served = [views.policy(each) async for each in policies.list()]
        except PodiumError as error:
            return PoolState(name, problem=error.message)
        return PoolState(name, views.engine(engine), tuple(served))

    async def close(self) -> None:
        """Closes every channel."""
        await self._controller.close()
        await self._rollout.close()
        await self._registry.close()
        for channel in self._pools.values():
            await channel.close()

    async def _live_jobs(self) -> tuple[list[jobs.Job], bool]:
        request = jobs.ListJobsRequest(states=views.LIVE, page_size=_COUNTED_JOBS)
        found: list[jobs.Job] = []
        while len(found) < _COUNTED_JOBS:
            with rpc_errors("controller"):
                response = await self.job_stub.ListJobs(request)
            found += response.jobs
            request.page_token = response.next_page_token
            if not request.page_token:
                break
        running = [job.id for job in found if job.state != jobs.JOB_STATE_QUEUED][:_ASKED_JOBS]
        asked = await asyncio.gather(*map(self.job, running), return_exceptions=True)
        told = {job.id: job for job in asked if isinstance(job, jobs.Job)}
        merged = [told.get(job.id, job) for job in found]
        # One that ended in between is no longer among those that have not.
        return [job for job in merged if job.state not in views.ENDED], bool(request.page_token)

    async def _get_job(self, channel: grpc.aio.Channel, job_id: str) -> jobs.Job | None:
        try:
            with rpc_errors("controller"):
                stub = jobs_grpc.JobServiceStub(channel)
                return (await stub.GetJob(jobs.GetJobRequest(job_id=job_id))).job
        except PodiumError:
            return None

    async def _workers(self) -> list[RolloutWorker]:
        try:
            channels: Mapping[str, grpc.aio.Channel] = await self._rollout.each()
        except PodiumError as error:
            return [RolloutWorker("rollout", error.message)]
        return list(await asyncio.gather(*(_ask(a, channel) for a, channel in channels.items())))


async def _ask(address: str, channel: grpc.aio.Channel) -> RolloutWorker:
    try:
        async with _patience("it"):
            with rpc_errors("rollout"):
                stub = rollout_grpc.RolloutServiceStub(channel)
                told = await stub.ListEnvironments(rollout.ListEnvironmentsRequest())
    except PodiumError as error:
        return RolloutWorker(address, error.message)
    return RolloutWorker(address, processes=told.workers if told.HasField("workers") else 1)


@asynccontextmanager
async def _patience(who: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            yield
    except TimeoutError:
        raise DeadlineExceededError(
            f"{who} does not answer within {_CHECK_SECONDS:g} seconds"
        ) from None
