"""The Job and the Service of a trainer, from the template that the installation gives."""

from __future__ import annotations

import copy

from podium.core.errors import Violation
from podium.types.v1 import spec_pb2

from podium_controller.cluster.object_template import (
    JOB_LABEL,
    Manifest,
    ObjectTemplate,
    reference,
)
from podium_controller.identifiers import DEFAULT_PROJECT
from podium_controller.placement import BAD_SETTINGS, TRAINER_CONTAINER

PROJECT_LABEL = "podium.dev/project"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUED_LABEL = "podium.dev/queue"
"""Of a Job that waits in the queue as part of something else, and not by itself."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
RENDEZVOUS_PORT = 29500

_DEFAULT_RESTARTS = 6
# Of the machines that wait for the last one's pod to start.
_RENDEZVOUS_SECONDS = 24 * 3600


class TrainerTemplate(ObjectTemplate):
    """A batch/v1 Job that every trainer is made from; services/controller/README.md says how."""

    setting = "trainer_template"
    api_version = "batch/v1"
    kind = "Job"
    container_name = TRAINER_CONTAINER

    def __init__(self, job: Manifest, gpu_resource: str) -> None:
        """`gpu_resource` is how nodes name their GPUs, such as nvidia.com/gpu.

        Raises:
            InvalidArgumentError: no trainer can be made from it.
        """
        super().__init__(job)
        self._gpu_resource = gpu_resource
        self.restarts: int = job["spec"].get("backoffLimit", _DEFAULT_RESTARTS)
        """How often each machine may crash."""

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """GPUs of all pods of a trainer."""
        limits = (self._container(self._manifest).get("resources") or {}).get("limits") or {}
        own = int(limits.get(self._gpu_resource) or 0)
        return max(spec.nodes, 1) * (spec.gpus_per_node if spec.HasField("gpus_per_node") else own)

    def job(
        self,
        job_id: str,
        spec: spec_pb2.TrainerSpec,
        owner: Manifest | None = None,
        *,
        name: str = "",
        project: str = DEFAULT_PROJECT,
    ) -> Manifest:
        """The Indexed Job of a job's trainer.

        Args:
            owner: the object that takes it with it when it goes.
            name: that it is to have; empty for that of all the job's objects.
            project: for a label, by which a cluster's own tools may tell them apart.
        """
        job = copy.deepcopy(self._manifest)
        nodes = max(spec.nodes, 1)
        host = self.name(job_id)
        name = name or host
        metadata, body = job["metadata"], job["spec"]
        metadata["name"] = name
        metadata["labels"] |= {JOB_LABEL: job_id, PROJECT_LABEL: project}
        if owner is not None:
            metadata["ownerReferences"] = [reference(owner)]
        body["completions"] = body["parallelism"] = nodes
        body["completionMode"] = "Indexed"
        body["backoffLimit"] = self.restarts * nodes
        # Where the API does not know it, it is dropped, and Watchman's counting does for both.
        body.setdefault("podFailurePolicy", _FAILURE_POLICY)
        if spec.queue:
            metadata["labels"][QUEUE_LABEL] = spec.queue
            body["suspend"] = True
        pod = body["template"]
        pod_labels = pod.setdefault("metadata", {}).setdefault("labels", {})
        pod_labels.update(self._selected)
        pod_labels |= {JOB_LABEL: job_id, PROJECT_LABEL: project}
        pod["spec"]["restartPolicy"] = "Never"
        if spec.priority_class:
            pod["spec"]["priorityClassName"] = spec.priority_class
        container = self._container(job)
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        processes = self._gpus(container, spec)
        if nodes * processes > 1:
            container["command"] = ["torchrun", "-m", "podium_trainer"]
            container.pop("args", None)
            _set_env(container, _torchrun(nodes, processes, f"{name}-0.{host}"))
        if nodes > 1:
            pod["spec"]["subdomain"] = host
        return job

    def service(self, job_id: str, owner: Manifest) -> Manifest:
        """The headless Service through which a trainer's machines find the first one.

        Args:
            owner: the Job as the cluster has it.
        """
        return self._headless_service(
            job_id,
            owner,
            # They meet before any of them is ready.
            publishNotReadyAddresses=True,
            ports=[{"name": "rendezvous", "port": RENDEZVOUS_PORT, "targetPort": RENDEZVOUS_PORT}],
        )

    def _gpus(self, container: Manifest, spec: spec_pb2.TrainerSpec) -> int:
        """Sets the GPUs of a machine; returns its processes, one a GPU."""
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        if spec.HasField("gpus_per_node"):
            limits[self._gpu_resource] = spec.gpus_per_node
            (container["resources"].get("requests") or {}).pop(self._gpu_resource, None)
        return int(limits.get(self._gpu_resource) or 1)

    def _container_violations(self, path: str, container: Manifest) -> list[Violation]:
        return [
            Violation(
                f"{path}.{probe}",
                "is not allowed; of several machines only the first has a port to probe."
                " A readinessProbe is",
            )
            for probe in ("livenessProbe", "startupProbe")
            if probe in container
        ]


_FAILURE_POLICY: Manifest = {
    "rules": [
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        },
        {
            "action": "FailJob",
            "onExitCodes": {
                "containerName": TRAINER_CONTAINER,
                "operator": "In",
                "values": [BAD_SETTINGS],
            },
        },
    ]
}


def _torchrun(nodes: int, processes: int, first: str) -> list[Manifest]:
    """What torchrun takes from its environment; see its `--help`."""
    variables: list[Manifest] = [{"name": "PET_NPROC_PER_NODE", "value": str(processes)}]
    if nodes > 1:
        index = f"metadata.annotations['{INDEX_ANNOTATION}']"
        variables += [
            {"name": "PET_NNODES", "value": str(nodes)},
            {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": index}}},
            {"name": "PET_MASTER_ADDR", "value": first},
            {"name": "PET_MASTER_PORT", "value": str(RENDEZVOUS_PORT)},
            {"name": "PET_RDZV_CONF", "value": f"timeout={_RENDEZVOUS_SECONDS}"},
        ]
    return variables


def _set_env(container: Manifest, variables: list[Manifest]) -> None:
    names = {variable["name"] for variable in variables}
    kept = [each for each in container.get("env") or [] if each["name"] not in names]
    container["env"] = kept + variables
