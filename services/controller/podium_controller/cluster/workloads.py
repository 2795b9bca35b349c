"""The Kubernetes Jobs, JobSets and Services of trainers: made, adopted, watched and removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from podium.core.errors import (
    AlreadyExistsError,
    NotFoundError,
    PodiumError,
)
from podium.core.tasks import cancel_and_wait
from podium.kit.kubernetes.api import (
    EVENTS,
    JOBS,
    PODS,
    SERVICES,
    ClusterApi,
    Selection,
)
from podium.kit.kubernetes.reflector import Reflector, all_listed

from podium_controller.cluster.jobset import JOBSETS, JobSets, job_name, outermost, wrap
from podium_controller.cluster.owner import Owner
from podium_controller.cluster.pod_status import Placement
from podium_controller.cluster.template import TrainerTemplate
from podium_controller.cluster.view import ClusterView
from podium_controller.domain.notifications import Notifications
from podium_controller.domain.ports import JobRecord
from podium_controller.pools.projects import project_of
from podium_controller.settings import UseJobSets

logger = logging.getLogger(__name__)

_NO_PODS = "involvedObject.kind=Job,reason=FailedCreate"
_REMOVE_AGAIN_SECONDS = 30.0


class Workloads:
    """One Kubernetes Job for each job that needs a trainer, in one namespace.

    Every method can raise what `ClusterApi` does.
    """

    def __init__(
        self,
        api: ClusterApi,
        template: TrainerTemplate,
        owner: str = "",
        job_sets: UseJobSets = "auto",
    ) -> None:
        """
        Args:
            owner: takes all of them with it when it goes; see `Owner`.
            job_sets: whether each Job is made by a JobSet of its own; see `JobSets`.
        """
        self._api = api
        self.template = template
        """What they are made from."""
        self.notifications = Notifications()
        """Wakes whoever waits for news of a job's trainer."""
        self._owner = Owner(api, owner)
        self._job_sets = JobSets(api, job_sets)
        self._view = ClusterView(self.notifications.notify)
        self._removing: dict[str, asyncio.Task[None]] = {}
        ours = template.selector
        view = self._view
        self._reflectors = [
            Reflector(api, Selection(JOBS, ours), view.set_jobs, view.change_job),
            Reflector(api, Selection(PODS, ours), view.set_pods, view.change_pod),
            Reflector(
                api, Selection(EVENTS, fields=_NO_PODS), view.set_refusals, view.change_refusal
            ),
        ]

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watches the cluster inside the block."""
        watches = [asyncio.create_task(each.run(), name=each.name) for each in self._reflectors]
        try:
            yield
        finally:
            await cancel_and_wait(*watches, *self._removing.values())

    async def listed(self, seconds: float) -> None:
        """Returns when it is known what there is.

        Raises:
            UnavailableError: not so soon; with what the cluster says.
        """
        await all_listed(self._reflectors, seconds)

    def placement(self, job_id: str) -> Placement:
        """What the cluster says of a job's trainer."""
        return self._view.placement(job_id)

    async def serves(self, api: str) -> bool:
        """Whether the cluster knows an API group."""
        return await self._api.serves(api)

    async def create(self, job: JobRecord) -> bool:
        """Makes the Kubernetes Job of a job, or has a JobSet make it; or adopts what is there.

        Returns:
            Whether there is one now, or will be; else a former one is still going away.

        Raises:
            AlreadyExistsError: what has its name is not of this job.
        """
        name = self.template.name(job.id)
        resource = await self._job_sets.resource()
        in_set = resource is JOBSETS
        body = self.template.job(
            job.id,
            job.spec.trainer,
            await self._owner.reference(),
            name=job_name(name) if in_set else name,
            project=project_of(job.spec),
            pool=job.pool,
        )
        try:
            made = await self._api.create(resource, wrap(body, name) if in_set else body)
        except AlreadyExistsError:
            made = await self._api.get(resource, name)
            if not self.template.is_ours(made, job.id):
                raise
        if made["metadata"].get("deletionTimestamp"):
            return False
        if not in_set:
            self._view.change_job("ADDED", made)
        return True

    async def create_service(self, job: JobRecord, uid: str) -> bool:
        """Makes the Service of a Kubernetes Job, unless its JobSet does.

        Returns:
            False while a former Job's is there.
        """
        found = self._view.manifest(uid)
        if found is not None and outermost(found)[0] is JOBSETS:
            return True
        owner = {
            "apiVersion": JOBS.api_version,
            "kind": "Job",
            "metadata": {"name": self.template.name(job.id), "uid": uid},
        }
        body = self.template.service(job.id, owner)
        try:
            await self._api.create(SERVICES, body)
        except AlreadyExistsError:
            there = await self._api.get(SERVICES, body["metadata"]["name"])
            owners = there["metadata"].get("ownerReferences") or []
            return any(each["uid"] == uid for each in owners)
        return True

    async def delete(self, uid: str) -> None:
        """Deletes that very Kubernetes Job, its JobSet, and all that they own. Idempotent."""
        found = self._view.manifest(uid)
        if found is not None:
            await self._api.delete(*outermost(found))
            self._view.remove_job(uid)

    async def delete_of(self, job_id: str) -> None:
        """Deletes a job's trainer, whether or not it is known of. Idempotent."""
        uid = self._view.placement(job_id).uid
        if uid:
            await self.delete(uid)
            return
        resource = await self._job_sets.resource()
        try:
            found = await self._api.get(resource, self.template.name(job_id))
        except NotFoundError:
            return
        if self.template.is_ours(found, job_id):
            uid = found["metadata"]["uid"]
            await self._api.delete(resource, self.template.name(job_id), uid)
            self._view.remove_job(uid)

    def retain(self, job_ids: Collection[str]) -> None:
        """Has all others deleted, in the background."""
        for uid, job_id in self._view.job_ids.items():
            if job_id in job_ids or uid in self._removing:
                continue
            logger.info("removing a trainer that no job needs", extra={"job": job_id})
            self._removing[uid] = asyncio.create_task(self._remove(job_id, uid))

    async def _remove(self, job_id: str, uid: str) -> None:
        try:
            await self.delete(uid)
        except PodiumError as error:
            logger.warning(
                "cannot remove a trainer; trying again later",
                extra={"job": job_id, "error": error.message},
            )
            await asyncio.sleep(_REMOVE_AGAIN_SECONDS)
        finally:
            del self._removing[uid]
