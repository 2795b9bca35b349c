"""What the cluster says of this installation's trainers, as `placement` wants it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from podium.kit.kubernetes.object_template import JOB_LABEL, Manifest

from podium_controller.cluster.pod_status import (
    TRAINER_CONTAINER,
    Ended,
    Placement,
    TrainerPod,
    is_alive,
)
from podium_controller.cluster.template import INDEX_ANNOTATION, QUEUE_LABEL, QUEUED_LABEL
from podium_controller.domain.waits import Wait

# Of one Job, those that ended; older ones are forgotten.
_MOST_ENDED = 64
_MESSAGE_LENGTH = 1000
_LOG_LENGTH = 500
_UNREMARKABLE = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass
class _Job:
    """A Kubernetes Job."""

    job_id: str
    manifest: Manifest


@dataclass
class _Pods:
    """Pods of one Kubernetes Job, by uid, as they came; and when the newest was made."""

    job_id: str
    by_uid: dict[str, TrainerPod] = field(default_factory=dict)
    newest: str = ""


class ClusterView:
    """Fed by watches; read by job id."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        """`notify` is told the id of every job about which there is news."""
        self._notify = notify
        self._jobs: dict[str, _Job] = {}
        self._pods: dict[str, _Pods] = {}
        self._refused: dict[str, tuple[str, Wait]] = {}
        self._removed: set[str] = set()

    @property
    def job_ids(self) -> dict[str, str]:
        """Job ids of the trainers there are, by the uids of their Kubernetes Jobs."""
        return {uid: job.job_id for uid, job in self._jobs.items()}

    def placement(self, job_id: str) -> Placement:
        """A job's trainer; of several, which cannot be, any."""
        uid = next((uid for uid, job in self._jobs.items() if job.job_id == job_id), "")
        if not uid:
            return Placement()
        manifest = self._jobs[uid].manifest
        spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
        labels = manifest["metadata"].get("labels") or {}
        conditions = _conditions(status)
        pods = self._pods.get(uid, _Pods(job_id))
        when, why = self._refused.get(uid, ("", None))
        return Placement(
            uid=uid,
            nodes=spec.get("completions") or 1,
            suspended=bool(spec.get("suspend")),
            queue=labels.get(QUEUE_LABEL) or labels.get(QUEUED_LABEL, ""),
            complete="Complete" in conditions,
            failed=conditions.get("Failed"),
            refused=why if when > pods.newest else None,
            pods=tuple(pods.by_uid.values()),
        )

    def manifest(self, uid: str) -> Manifest | None:
        """A Kubernetes Job as the cluster has it; None when there is no such Job."""
        job = self._jobs.get(uid)
        return job.manifest if job else None

    def set_jobs(self, manifests: list[Manifest]) -> None:
        """All Kubernetes Jobs there are."""
        self._removed &= {_uid(each) for each in manifests}
        for uid in self._jobs.keys() - {_uid(each) for each in manifests}:
            self._forget(uid)
        for manifest in manifests:
            self.change_job("ADDED", manifest)

    def change_job(self, kind: str, manifest: Manifest) -> None:
        """A Kubernetes Job was ADDED, MODIFIED or DELETED."""
        uid = _uid(manifest)
        if kind == "DELETED":
            self._removed.discard(uid)
            self._forget(uid)
        elif uid not in self._removed:
            if manifest["metadata"].get("deletionTimestamp"):
                self._forget(uid)
                return
            job_id = manifest["metadata"]["labels"][JOB_LABEL]
            self._jobs[uid] = _Job(job_id, manifest)
            self._notify(job_id)

    def remove_job(self, uid: str) -> None:
        """A Kubernetes Job was deleted by us; news of it that are still on their way are old."""
        if uid in self._jobs:
            self._removed.add(uid)
            self._forget(uid)

    def set_pods(self, manifests: list[Manifest]) -> None:
        """All pods there are."""
        alive = {_uid(each) for each in manifests}
        for owner, pods in list(self._pods.items()):
            if owner not in self._jobs:
                del self._pods[owner]
                continue
            for uid, pod in pods.by_uid.items():
                if uid not in alive:
                    pods.by_uid[uid] = replace(pod, leaving=True)
            self._notify(pods.job_id)
        for manifest in manifests:
            self.change_pod("ADDED", manifest)

    def change_pod(self, kind: str, manifest: Manifest) -> None:
        """A pod was ADDED, MODIFIED or DELETED."""
        owner = _owner(manifest)
        metadata = manifest["metadata"]
        pods = self._pods.setdefault(owner, _Pods(metadata["labels"][JOB_LABEL]))
        pod = pod_of(manifest)
        if kind == "DELETED":
            if owner not in self._jobs:
                pods.by_uid.pop(pod.uid, None)
                if not pods.by_uid:
                    del self._pods[owner]
                return
            pod = replace(pod, leaving=True)
        pods.by_uid[pod.uid] = pod
        pods.newest = max(pods.newest, metadata.get("creationTimestamp") or "")
        ended = [uid for uid, each in pods.by_uid.items() if not is_alive(each)]
        for uid in ended[:-_MOST_ENDED]:
            del pods.by_uid[uid]
        self._notify(pods.job_id)

    def set_refusals(self, manifests: list[Manifest]) -> None:
        """All events of Jobs that may have no pods."""
        self._refused.clear()
        for manifest in manifests:
            self.change_refusal("ADDED", manifest)

    def change_refusal(self, kind: str, manifest: Manifest) -> None:
        """The cluster refused a Job's pod; or it has long ago, and forgets it."""
        uid = manifest["involvedObject"].get("uid", "")
        if kind == "DELETED":
            self._refused.pop(uid, None)
            return
        said = Wait(manifest.get("reason", ""), _cut(manifest.get("message") or ""))
        self._refused[uid] = (_when(manifest), said)
        if uid in self._jobs:
            self._notify(self._jobs[uid].job_id)

    def _forget(self, uid: str) -> None:
        job = self._jobs.pop(uid, None)
        self._pods.pop(uid, None)
        self._refused.pop(uid, None)
        if job is not None:
            self._notify(job.job_id)


def pod_of(manifest: Manifest) -> TrainerPod:
    """A pod as its JSON has it."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    scheduled = _conditions(status, "False").get("PodScheduled")
    return TrainerPod(
        uid=metadata["uid"],
        name=metadata["name"],
        index=int((metadata.get("annotations") or {}).get(INDEX_ANNOTATION, "0")),
        phase=status.get("phase") or "Pending",
        ip=status.get("podIP") or "",
        ready="Ready" in _conditions(status),
        reason=status.get("reason") or "",
        message=_cut(status.get("message") or ""),
        leaving=bool(metadata.get("deletionTimestamp")),
        disruption=_conditions(status).get("DisruptionTarget"),
        unscheduled=scheduled,
        waiting=_waiting(status),
        ended=_ended(status),
    )


def _conditions(status: Manifest, value: str = "True") -> dict[str, Wait]:
    return {
        each["type"]: Wait(each.get("reason") or "", _cut(each.get("message") or ""))
        for each in status.get("conditions") or []
        if each.get("status") == value
    }


def _containers(status: Manifest) -> list[tuple[str, Manifest]]:
    kinds = ("initContainerStatuses", "containerStatuses")
    every = [each for kind in kinds for each in status.get(kind) or []]
    return [(each["name"], each.get("state") or {}) for each in every]


def _waiting(status: Manifest) -> Wait | None:
    found = [
        Wait(state["waiting"].get("reason") or "", _cut(state["waiting"].get("message") or ""))
        for _, state in _containers(status)
        if state.get("waiting")
    ]
    return next(
        (wait for wait in found if wait.reason not in _UNREMARKABLE), found[0] if found else None
    )


def _ended(status: Manifest) -> Ended | None:
    found = [
        (name, state["terminated"])
        for name, state in _containers(status)
        if state.get("terminated")
        and (state["terminated"].get("exitCode") or name == TRAINER_CONTAINER)
    ]
    if not found:
        return None
    # The one that failed first made the others fail.
    name, state = min(
        found, key=lambda each: (not each[1].get("exitCode"), each[1].get("finishedAt") or "")
    )
    return Ended(
        name,
        state.get("exitCode") or 0,
        state.get("reason") or "",
        (state.get("message") or "").strip()[-_LOG_LENGTH:],
    )


def _uid(manifest: Manifest) -> str:
    uid: str = manifest["metadata"]["uid"]
    return uid


def _owner(manifest: Manifest) -> str:
    owners = manifest["metadata"].get("ownerReferences") or []
    return next((each["uid"] for each in owners if each.get("controller")), "")


def _when(event: Manifest) -> str:
    series = event.get("series") or {}
    return (
        event.get("lastTimestamp")
        or series.get("lastObservedTime")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[:_MESSAGE_LENGTH]} …"
