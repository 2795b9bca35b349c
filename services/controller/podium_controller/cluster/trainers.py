"""A trainer of its own for every job, as a Kubernetes Job, by itself or in a JobSet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
from podium.core.backoff import Backoff
from podium.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
    Violation,
)
from podium.kit.kubernetes.api import connected
from podium.trainer.v1 import trainer_service_pb2 as trainer_pb
from podium.types.v1 import spec_pb2, trajectory_pb2

from podium_controller.cluster.environment_template import EnvironmentTemplate
from podium_controller.cluster.environments import KubernetesEnvironments
from podium_controller.cluster.owner import Owner
from podium_controller.cluster.pod_status import TrainerAction, TrainerPod, Watchman
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.cluster.wait_reasons import (
    RETELL_SECONDS,
    SILENCE_SECONDS,
    WaitReporter,
    over_quota,
    refusal,
)
from podium_controller.cluster.workloads import Workloads
from podium_controller.domain import metrics
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import JobRecord, Trainer
from podium_controller.domain.waits import TRAINER_STARTING, OnWait, Wait
from podium_controller.settings import Settings

Dial = Callable[[str], tuple[grpc.aio.Channel, Trainer]]
"""A channel to `host:port`, and the trainer at its other end."""

_KUEUE = "kueue.x-k8s.io"
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


class KubernetesTrainers:
    """See `ports.Trainers`."""

    own = None

    def __init__(self, workloads: Workloads, dial: Dial) -> None:
        self._workloads = workloads
        self._dial = dial
        self._trainers: dict[str, KubernetesTrainer] = {}

    async def violations(self, spec: spec_pb2.TrainerSpec) -> list[Violation]:
        """See `ports.Trainers`."""
        if not spec.queue or await self._workloads.serves(_KUEUE):
            return []
        return [
            Violation(
                "job.spec.trainer.queue",
                f"got {spec.queue!r}; allowed is none: the cluster has no Kueue ({_KUEUE})",
            )
        ]

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """See `ports.Trainers`."""
        return self._workloads.template.gpus(spec)

    def of(self, job: JobRecord) -> KubernetesTrainer:
        """See `ports.Trainers`."""
        if job.id not in self._trainers:
            self._trainers[job.id] = KubernetesTrainer(
                job, self._workloads, self._dial, lambda: self._trainers.pop(job.id, None)
            )
        trainer = self._trainers[job.id]
        trainer.place(job)
        return trainer

    async def retain(self, job_ids: Collection[str]) -> None:
        """See `ports.Trainers`."""
        self._workloads.retain(job_ids)

    async def hang_up(self) -> None:
        """Closes all channels, and leaves the trainers as they are."""
        for trainer in self._trainers.values():
            await trainer.hang_up()


class KubernetesTrainer:
    """See `ports.Trainer`: the one of one job, wherever the cluster has put it."""

    def __init__(
        self,
        job: JobRecord,
        workloads: Workloads,
        dial: Dial,
        on_close: Callable[[], object],
    ) -> None:
        self._job = job
        self._workloads = workloads
        self._dial = dial
        self._on_close = on_close
        self._watchman = Watchman(workloads.template.restarts)
        self._service_of = ""
        self._pod = ""
        self._channel: grpc.aio.Channel | None = None
        self._trainer: Trainer | None = None

    def place(self, job: JobRecord) -> None:
        """Takes the job's record as it is now: it may be at another pool than when it last ran."""
        self._job = job

    async def ready(self, on_wait: OnWait) -> bool:
        """See `ports.Trainer`."""
        tell = WaitReporter(on_wait)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            ticket = self._workloads.notifications.ticket(self._job.id)
            try:
                pod, seconds = await self._advance(tell)
                backoff.reset()
            except (UnavailableError, PermissionDeniedError) as error:
                pod, seconds = None, backoff.next()
                await tell(refusal(error))
            if pod is not None:
                await self._connect(pod)
                return self._watchman.settle()
            await self._workloads.notifications.wait(ticket, seconds)

    async def open(self, request: trainer_pb.OpenRequest) -> trainer_pb.OpenResponse:
        """See `ports.Trainer`."""
        return await self._there().open(request)

    async def step(
        self, job_id: str, step: int, groups: Sequence[trajectory_pb2.Group]
    ) -> trainer_pb.StepResponse:
        """See `ports.Trainer`."""
        return await self._there().step(job_id, step, groups)

    async def save(self, request: trainer_pb.SaveRequest) -> trainer_pb.SaveResponse:
        """See `ports.Trainer`."""
        return await self._there().save(request)

    async def save_state(self, job_id: str, step: int) -> None:
        """See `ports.Trainer`."""
        await self._there().save_state(job_id, step)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Trainer`. Its Kubernetes Job goes, and with it its pods."""
        if job_id != self._job.id:
            return
        self._on_close()
        await self.hang_up()
        async with asyncio.timeout(seconds):
            await self._workloads.delete_of(self._job.id)

    async def hang_up(self) -> None:
        """Closes the channel, and leaves the trainer as it is."""
        channel, self._channel, self._trainer, self._pod = self._channel, None, None, ""
        if channel is not None:
            await channel.close()

    async def _advance(self, tell: WaitReporter) -> tuple[TrainerPod | None, float]:
        """Does what is to be done now.

        Returns:
            The pod to open, if it is there, and for how long to wait for news.

        Raises:
            JobFailedError: there will be none.
            UnavailableError, PermissionDeniedError: the cluster refuses, and
                may not later.
        """
        await self._workloads.listed(RETELL_SECONDS)
        now = self._workloads.placement(self._job.id)
        decision = self._watchman.look(now)
        for news in decision.news:
            metrics.trainer_ended(self._job.id, news.reason)
            await tell(news)
        if decision.action is TrainerAction.FAIL:
            raise JobFailedError(decision.why.message, reason=decision.why.reason)
        if decision.action is TrainerAction.REPLACE:
            await self._workloads.delete(now.uid)
            return None, 0.0
        if decision.action is TrainerAction.CREATE:
            return None, await self._create(tell)
        seconds = SILENCE_SECONDS
        if now.nodes > 1 and self._service_of != now.uid:
            if await self._workloads.create_service(self._job, now.uid):
                self._service_of = now.uid
            else:
                seconds = _FIRST_PAUSE
        if decision.action is TrainerAction.OPEN:
            return decision.pod, 0.0
        return None, min(seconds, await tell(decision.why))

    async def _create(self, tell: WaitReporter) -> float:
        """Returns for how long to wait for news of what was made."""
        try:
            if not await self._workloads.create(self._job):
                await tell(Wait(TRAINER_STARTING, "a former trainer of the job is going away"))
                return _FIRST_PAUSE
        except AlreadyExistsError as error:
            raise JobFailedError(
                f"{error.message}, and is no trainer of this job", reason="TRAINER_NAME_TAKEN"
            ) from error
        except InvalidArgumentError as error:
            raise JobFailedError(error.message, reason="TRAINER_INVALID") from error
        except PermissionDeniedError as error:
            if over_quota(error):
                raise
            raise JobFailedError(error.message, reason="TRAINER_FORBIDDEN") from error
        if not self._workloads.placement(self._job.id).uid:
            await tell(Wait(TRAINER_STARTING, "its JobSet has made no Job so far"))
        return RETELL_SECONDS

    async def _connect(self, pod: TrainerPod) -> None:
        if pod.uid != self._pod:
            await self.hang_up()
            host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
            self._channel, self._trainer = self._dial(f"{host}:{self._workloads.template.port}")
            self._pod = pod.uid

    def _there(self) -> Trainer:
        if self._trainer is None:
            raise UnavailableError("the trainer has no place", metadata={"peer": "trainer"})
        return self._trainer


@asynccontextmanager
async def cluster_workplace(
    settings: Settings, dial: Dial
) -> AsyncIterator[tuple[KubernetesTrainers, KubernetesEnvironments | None]]:
    """What jobs have in the cluster that this process runs in, watched inside the block.

    Environments are None when the settings name no template for them.

    Raises:
        InvalidArgumentError: a template is none, or there is no cluster.
    """
    assert settings.trainer_template is not None
    template = TrainerTemplate.of_pools(
        settings.trainer_template, settings.gpu_resource, list(settings.pool_addresses())
    )
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(connected(settings.namespace))
        environments = None
        if settings.environment_template is not None:
            made_from = EnvironmentTemplate.load(settings.environment_template)
            owner = Owner(api, settings.trainer_owner)
            environments = KubernetesEnvironments(api, made_from, owner)
            await stack.enter_async_context(environments.watching())
        workloads = Workloads(api, template, settings.trainer_owner, settings.trainer_job_set)
        trainers = KubernetesTrainers(workloads, dial)
        await stack.enter_async_context(workloads.watching())
        stack.push_async_callback(trainers.hang_up)
        yield trainers, environments
