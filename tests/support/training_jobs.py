"""Doubles of the API server's TrainingJobs and of JobService, as far as the operator sees them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from podium.core.errors import AlreadyExistsError, NotFoundError, PodiumError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

Manifest = dict[str, Any]

JOB = {
    "base_model": "m",
    "environment": {"name": "email_search"},
    "training": {"steps": 3},
}


class Resources:
    """TrainingJobs with a status of their own, finalizers and generations."""

    def __init__(self) -> None:
        self.items: dict[str, Manifest] = {}
        self.patches = 0
        self._version = 0
        self._events: asyncio.Queue[Manifest] = asyncio.Queue()

    def apply(self, name: str, job: Manifest, **spec: Any) -> None:
        """As `kubectl apply`."""
        wanted = {"job": copy.deepcopy(job), **spec}
        item = self.items.get(name)
        if item is None:
            metadata = {"name": name, "uid": f"uid-{name}-{self._version}", "generation": 1}
            item = self.items[name] = {"metadata": metadata, "spec": wanted}
            self._tell("ADDED", item)
        elif item["spec"] != wanted:
            item["spec"] = wanted
            item["metadata"]["generation"] += 1
            self._tell("MODIFIED", item)

    def delete(self, name: str) -> None:
        """As `kubectl delete --wait=false`."""
        item = self.items[name]
        item["metadata"]["deletionTimestamp"] = "now"
        self._settle(name)

    def status(self, name: str) -> Manifest:
        found: Manifest = self.items[name].get("status", {})
        return found

    def condition(self, name: str) -> Manifest:
        (found,) = self.status(name)["conditions"]
        assert found["type"] == "Accepted"
        return dict(found)

    async def list_all(self, selection: Any) -> tuple[list[Manifest], str]:
        return copy.deepcopy(list(self.items.values())), str(self._version)

    async def watch(self, selection: Any, version: str) -> AsyncGenerator[Manifest, None]:
        while True:
            yield await self._events.get()

    async def patch(
        self, resource: Any, name: str, body: Manifest, subresource: str = ""
    ) -> Manifest:
        if name not in self.items:
            raise NotFoundError(f"no {name}")
        self.patches += 1
        item = self.items[name]
        part = "status" if subresource else "metadata"
        assert set(body) == {part}
        merged = {**item.get(part, {}), **body[part]}
        item[part] = {key: value for key, value in merged.items() if value is not None}
        copied = copy.deepcopy(item)
        self._settle(name)
        return copied

    def _settle(self, name: str) -> None:
        item = self.items[name]
        if "deletionTimestamp" in item["metadata"] and not item["metadata"].get("finalizers"):
            del self.items[name]
            self._tell("DELETED", item)
        else:
            self._tell("MODIFIED", item)

    def _tell(self, kind: str, item: Manifest) -> None:
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self._events.put_nowait({"type": kind, "object": copy.deepcopy(item)})


class Jobs:
    """Jobs that change when a test says so."""

    def __init__(self) -> None:
        self.jobs: dict[str, pb.Job] = {}
        self.requests: dict[str, str] = {}
        self.calls: list[str] = []
        self.fault: PodiumError | None = None

    async def create(
        self, spec: spec_pb2.JobSpec, *, job_id: str = "", request_id: str = ""
    ) -> pb.Job:
        self.calls.append(f"create {job_id}")
        if self.fault is not None:
            raise self.fault
        if job_id in self.jobs and self.requests.get(job_id) != request_id:
            raise AlreadyExistsError(f"job {job_id!r} is there already", reason="JOB_EXISTS")
        self.requests[job_id] = request_id
        job = pb.Job(id=job_id, spec=spec, state=pb.JOB_STATE_QUEUED)
        return self.jobs.setdefault(job_id, job)

    async def list(self) -> AsyncIterator[pb.Job]:
        for job in list(self.jobs.values()):
            copied = pb.Job()
            copied.CopyFrom(job)
            yield copied

    async def cancel(self, job_id: str) -> pb.Job:
        return self._set("cancel", job_id, pb.JOB_STATE_CANCELLING)

    async def pause(self, job_id: str) -> pb.Job:
        return self._set("pause", job_id, pb.JOB_STATE_PAUSED)

    async def resume(self, job_id: str) -> pb.Job:
        return self._set("resume", job_id, pb.JOB_STATE_QUEUED)

    def _set(self, call: str, job_id: str, state: pb.JobState.ValueType) -> pb.Job:
        self.calls.append(f"{call} {job_id}")
        self.jobs[job_id].state = state
        return self.jobs[job_id]
