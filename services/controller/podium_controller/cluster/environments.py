"""Environments that are given as images: a Deployment and a Service for each job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from podium.core.backoff import Backoff
from podium.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    PermissionDeniedError,
    PodiumError,
    UnavailableError,
    Violation,
)
from podium.core.tasks import cancel_and_wait
from podium.kit.kubernetes.api import (
    DEPLOYMENTS,
    PODS,
    SERVICES,
    ClusterApi,
    Selection,
)
from podium.kit.kubernetes.object_template import JOB_LABEL, Manifest
from podium.kit.kubernetes.reflector import Reflector, all_listed
from podium.types.v1 import spec_pb2

from podium_controller.cluster.environment_template import EnvironmentTemplate
from podium_controller.cluster.owner import Owner
from podium_controller.cluster.pod_status import TrainerPod
from podium_controller.cluster.view import pod_of
from podium_controller.cluster.wait_reasons import (
    RETELL_SECONDS,
    SILENCE_SECONDS,
    WaitReporter,
    over_quota,
    refusal,
)
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import JobRecord
from podium_controller.domain.waits import ENVIRONMENT_STARTING, OnWait, Wait

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0


@dataclass
class _Seen:
    """What the cluster has of one job."""

    uid: str = ""
    available: int = 0
    refused: str = ""
    """Why the cluster takes no pod of it."""
    pods: dict[str, TrainerPod] = field(default_factory=dict)


class KubernetesEnvironments:
    """See `ports.Environments`."""

    def __init__(self, api: ClusterApi, template: EnvironmentTemplate, owner: Owner) -> None:
        self._api = api
        self._template = template
        self._owner = owner
        self._notifications = Notifications()
        self._seen: dict[str, _Seen] = {}
        self._removed: set[str] = set()
        self._removing: dict[str, asyncio.Task[None]] = {}
        ours = template.selector
        self._reflectors = [
            Reflector(
                api,
                Selection(DEPLOYMENTS, ours),
                self._set_deployments,
                self._change_deployment,
            ),
            Reflector(api, Selection(PODS, ours), self._set_pods, self._change_pod),
        ]

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watches the cluster inside the block."""
        watches = [asyncio.create_task(each.run()) for each in self._reflectors]
        try:
            yield
        finally:
            await cancel_and_wait(*watches, *self._removing.values())

    async def violations(self, spec: spec_pb2.EnvironmentSpec) -> list[Violation]:
        """See `ports.Environments`."""
        return []

    async def place(self, job: JobRecord, on_wait: OnWait) -> str:
        """See `ports.Environments`."""
        tell = WaitReporter(on_wait)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            ticket = self._notifications.ticket(job.id)
            try:
                if await self._advance(job):
                    host = f"{self._template.name(job.id)}.{self._api.namespace}.svc"
                    return f"{host}:{self._template.port}"
                backoff.reset()
                seconds = min(SILENCE_SECONDS, await tell(self._why(job.id)))
            except (UnavailableError, PermissionDeniedError) as error:
                await tell(refusal(error))
                seconds = backoff.next()
            await self._notifications.wait(ticket, seconds)

    async def close(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Environments`."""
        async with asyncio.timeout(seconds):
            found = self._seen.get(job_id)
            if found is not None and found.uid:
                await self._api.delete(DEPLOYMENTS, self._template.name(job_id), found.uid)
                # Whoever places it again must not take this one, of which the watch still tells.
                self._removed.add(found.uid)
                self._seen[job_id] = _Seen(pods=found.pods)

    async def retain(self, job_ids: Collection[str]) -> None:
        """See `ports.Environments`."""
        for job_id, found in list(self._seen.items()):
            if job_id in job_ids or not found.uid or job_id in self._removing:
                continue
            logger.info("removing an environment that no job needs", extra={"job": job_id})
            self._removing[job_id] = asyncio.create_task(self._remove(job_id))

    async def _remove(self, job_id: str) -> None:
        try:
            await self.close(job_id)
        except PodiumError as error:
            logger.warning(
                "cannot remove an environment; trying again later",
                extra={"job": job_id, "error": error.message},
            )
            await asyncio.sleep(_LONGEST_PAUSE)
        finally:
            del self._removing[job_id]

    async def _advance(self, job: JobRecord) -> bool:
        """Makes what is not there; returns whether it takes connections."""
        await all_listed(self._reflectors, RETELL_SECONDS)
        found = self._seen.get(job.id, _Seen())
        if not found.uid:
            made = await self._create(job)
            if made is None:
                return False
            await self._create_service(job.id, made)
            self._change_deployment("ADDED", made)
        return bool(self._seen[job.id].available) if job.id in self._seen else False

    async def _create(self, job: JobRecord) -> Manifest | None:
        """The Deployment, made or adopted; None while a former one is going away."""
        owner = await self._owner.reference()
        body = self._template.deployment(job.id, job.spec.environment, owner)
        name = body["metadata"]["name"]
        try:
            made = await self._api.create(DEPLOYMENTS, body)
        except AlreadyExistsError as error:
            made = await self._api.get(DEPLOYMENTS, name)
            if not self._template.is_ours(made, job.id):
                raise JobFailedError(
                    f"{error.message}, and is no environment of this job",
                    reason="ENVIRONMENT_NAME_TAKEN",
                ) from error
        except InvalidArgumentError as error:
            raise JobFailedError(error.message, reason="ENVIRONMENT_INVALID") from error
        except PermissionDeniedError as error:
            if over_quota(error):
                raise
            raise JobFailedError(error.message, reason="ENVIRONMENT_FORBIDDEN") from error
        return None if made["metadata"].get("deletionTimestamp") else made

    async def _create_service(self, job_id: str, deployment: Manifest) -> None:
        owner = {
            "apiVersion": DEPLOYMENTS.api_version,
            "kind": "Deployment",
            "metadata": deployment["metadata"],
        }
        try:
            await self._api.create(SERVICES, self._template.service(job_id, owner))
        except AlreadyExistsError:
            found = await self._api.get(SERVICES, self._template.name(job_id))
            owners = found["metadata"].get("ownerReferences") or []
            if not any(each["uid"] == deployment["metadata"]["uid"] for each in owners):
                raise UnavailableError("a former environment's Service is going away") from None

    def _why(self, job_id: str) -> Wait:
        """In the words of the pod that has most to say."""
        seen = self._seen.get(job_id, _Seen())
        for pod in seen.pods.values():
            for said in (pod.unscheduled, pod.waiting):
                if said is not None and said.message:
                    return Wait(ENVIRONMENT_STARTING, f"{said.reason}: {said.message}")
        return Wait(ENVIRONMENT_STARTING, seen.refused or "the environment's pods start")

    def _set_deployments(self, manifests: list[Manifest]) -> None:
        there = {_job_of(each) for each in manifests}
        self._removed &= {each["metadata"]["uid"] for each in manifests}
        for job_id in [each for each in self._seen if each not in there]:
            self._seen[job_id] = _Seen(pods=self._seen[job_id].pods)
            self._notifications.notify(job_id)
        for manifest in manifests:
            self._change_deployment("ADDED", manifest)

    def _change_deployment(self, kind: str, manifest: Manifest) -> None:
        job_id, uid = _job_of(manifest), manifest["metadata"]["uid"]
        found = self._seen.setdefault(job_id, _Seen())
        if kind == "DELETED":
            self._removed.discard(uid)
            if found.uid == uid:
                found.uid, found.available = "", 0
            if not found.uid and not found.pods:
                del self._seen[job_id]
        elif uid not in self._removed and not manifest["metadata"].get("deletionTimestamp"):
            found.uid = uid
            status = manifest.get("status") or {}
            found.available = status.get("availableReplicas") or 0
            found.refused = next(
                (
                    each.get("message") or ""
                    for each in status.get("conditions") or []
                    if (each["type"], each["status"]) == ("ReplicaFailure", "True")
                ),
                "",
            )
        self._notifications.notify(job_id)

    def _set_pods(self, manifests: list[Manifest]) -> None:
        for found in self._seen.values():
            found.pods.clear()
        for manifest in manifests:
            self._change_pod("ADDED", manifest)

    def _change_pod(self, kind: str, manifest: Manifest) -> None:
        job_id = _job_of(manifest)
        pods = self._seen.setdefault(job_id, _Seen()).pods
        if kind == "DELETED":
            pods.pop(manifest["metadata"]["uid"], None)
            if not pods and not self._seen[job_id].uid:
                del self._seen[job_id]
        else:
            pods[manifest["metadata"]["uid"]] = pod_of(manifest)
        self._notifications.notify(job_id)


def _job_of(manifest: Manifest) -> str:
    job_id: str = manifest["metadata"]["labels"][JOB_LABEL]
    return job_id
