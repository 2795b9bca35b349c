"""A trainer's Job in a JobSet of its own, where the cluster has JobSets."""

from __future__ import annotations

from podium.core.errors import UnavailableError
from podium.kit.kubernetes.api import JOBS, ClusterApi, Resource
from podium.kit.kubernetes.object_template import Manifest

from podium_controller.cluster.template import QUEUE_LABEL, QUEUED_LABEL
from podium_controller.settings import UseJobSets

# The JobSet controller takes Jobs of a JobSet that is gone for those of the next one of its name,
# and an end of theirs for its own: so a JobSet goes after its Jobs.
JOBSETS = Resource("jobset.x-k8s.io/v1alpha2", "jobsets", removal="Foreground")

_KIND = "JobSet"
_MEMBER = "job"


class JobSets:
    """Whether trainers are made as JobSets; the cluster is asked once, when it first matters."""

    def __init__(self, api: ClusterApi, use: UseJobSets) -> None:
        self._api = api
        self._use = use
        self._resource = JOBS if use == "never" else None

    async def resource(self) -> Resource:
        """What a trainer is made as: JOBSETS, or JOBS.

        Raises:
            UnavailableError: it must be JOBSETS, and the cluster has none.
        """
        if self._resource is None:
            served = await self._api.serves(JOBSETS.api_version)
            if self._use == "always" and not served:
                raise UnavailableError(
                    f"the cluster serves no {JOBSETS.api_version}, and trainers are always to be"
                    " JobSets (TRAINER_JOB_SET)",
                    reason="CLUSTER_UNAVAILABLE",
                )
            self._resource = JOBSETS if served else JOBS
        return self._resource


def job_name(name: str) -> str:
    """The name of the Job of a JobSet, which the names of its pods begin with."""
    return f"{name}-{_MEMBER}-0"


def wrap(job: Manifest, name: str) -> Manifest:
    """The JobSet `name` that makes this Job, with `job_name(name)`; its pods meet at `name`.

    What is decided about the whole stands on the JobSet alone: its owner, its queue, and whether
    it is suspended.
    """
    metadata, spec = job["metadata"], job["spec"]
    labels = dict(metadata["labels"])
    if QUEUE_LABEL in labels:
        labels[QUEUED_LABEL] = labels.pop(QUEUE_LABEL)
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": _KIND,
        "metadata": {**metadata, "name": name},
        "spec": {
            "suspend": bool(spec.get("suspend")),
            # Watchman counts, and replaces what has failed.
            "failurePolicy": {"maxRestarts": 0},
            "network": {
                "enableDNSHostnames": spec["completions"] > 1,
                "subdomain": name,
                # They meet before any of them is ready.
                "publishNotReadyAddresses": True,
            },
            "replicatedJobs": [
                {
                    "name": _MEMBER,
                    "replicas": 1,
                    "template": {
                        "metadata": {
                            "labels": labels,
                            "annotations": metadata.get("annotations") or {},
                        },
                        "spec": {key: spec[key] for key in spec if key != "suspend"},
                    },
                }
            ],
        },
    }


def outermost(job: Manifest) -> tuple[Resource, str, str]:
    """Resource, name and uid of what a Job goes with when it is deleted: its JobSet, or itself."""
    for owner in job["metadata"].get("ownerReferences") or []:
        if owner["kind"] == _KIND and owner.get("controller"):
            return JOBSETS, owner["name"], owner["uid"]
    return JOBS, job["metadata"]["name"], job["metadata"]["uid"]
