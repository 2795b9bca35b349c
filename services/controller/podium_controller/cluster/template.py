"""The Job and the Service of a trainer, from the template that the installation gives."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import yaml
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2

from podium_controller.identifiers import DEFAULT_PROJECT
from podium_controller.placement import BAD_SETTINGS, TRAINER_CONTAINER

Manifest = dict[str, Any]

JOB_LABEL = "podium.dev/job"
PROJECT_LABEL = "podium.dev/project"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUED_LABEL = "podium.dev/queue"
"""Of a Job that waits in the queue as part of something else, and not by itself."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
GRPC_PORT_NAME = "grpc"
RENDEZVOUS_PORT = 29500

INSTANCE_LABEL = "app.kubernetes.io/instance"
SELECTED_LABELS = ("app.kubernetes.io/name", INSTANCE_LABEL, "app.kubernetes.io/component")
# A pod's name is what JobSet makes of it: <name>-job-0-<index>-<5 characters>, at most 63 together;
# there are at most 1024 pods.
_NAME_LENGTH = 46
_DIGEST_LENGTH = 8
_DEFAULT_RESTARTS = 6
# Of the machines that wait for the last one's pod to start.
_RENDEZVOUS_SECONDS = 24 * 3600


def object_name(prefix: str, job_id: str) -> str:
    """The name of a job's objects: the same after any restart, and a DNS label."""
    name = f"{prefix}-{job_id}"
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


class TrainerTemplate:
    """A batch/v1 Job that every trainer is made from; services/controller/README.md says how."""

    def __init__(self, job: Manifest, gpu_resource: str) -> None:
        """`gpu_resource` is how nodes name their GPUs, such as nvidia.com/gpu.

        Raises:
            InvalidArgumentError: no trainer can be made from it.
        """
        found = _violations(job)
        if found:
            raise InvalidArgumentError(violations=found)
        self._job = job
        self._gpu_resource = gpu_resource
        self.restarts: int = job["spec"].get("backoffLimit", _DEFAULT_RESTARTS)
        """How often each machine may crash."""
        self.port: int = _port(_container(job))
        labels = job["metadata"]["labels"]
        self._selected = {key: labels[key] for key in SELECTED_LABELS if key in labels}

    @classmethod
    def load(cls, path: Path, gpu_resource: str) -> TrainerTemplate:
        """Reads the file.

        Raises:
            InvalidArgumentError: it is not there, is no YAML, or no trainer can
                be made from it.
        """
        try:
            job = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            found = Violation("trainer_template", f"got {str(path)!r}: {error}")
            raise InvalidArgumentError(violations=[found]) from error
        return cls(job, gpu_resource)

    @property
    def selector(self) -> str:
        """Label selector of every object that is made from it."""
        return ",".join([*(f"{key}={value}" for key, value in self._selected.items()), JOB_LABEL])

    def name(self, job_id: str) -> str:
        """The name of a job's objects."""
        return object_name(self._job["metadata"]["name"], job_id)

    def is_ours(self, found: Manifest, job_id: str) -> bool:
        """Whether an object of that name is this installation's, for this job."""
        labels = found["metadata"].get("labels") or {}
        wanted = {**self._selected, JOB_LABEL: job_id}
        return all(labels.get(key) == value for key, value in wanted.items())

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """GPUs of all pods of a trainer."""
        limits = (_container(self._job).get("resources") or {}).get("limits") or {}
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
        job = copy.deepcopy(self._job)
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
        container = _container(job)
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
        name = self.name(job_id)
        labels = {**self._selected, JOB_LABEL: job_id}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": name,
                "labels": labels,
                "ownerReferences": [reference(owner)],
            },
            "spec": {
                "clusterIP": "None",
                # They meet before any of them is ready.
                "publishNotReadyAddresses": True,
                "selector": labels,
                "ports": [
                    {"name": "rendezvous", "port": RENDEZVOUS_PORT, "targetPort": RENDEZVOUS_PORT}
                ],
            },
        }

    def _gpus(self, container: Manifest, spec: spec_pb2.TrainerSpec) -> int:
        """Sets the GPUs of a machine; returns its processes, one a GPU."""
        limits = container.setdefault("resources", {}).setdefault("limits", {})
        if spec.HasField("gpus_per_node"):
            limits[self._gpu_resource] = spec.gpus_per_node
            (container["resources"].get("requests") or {}).pop(self._gpu_resource, None)
        return int(limits.get(self._gpu_resource) or 1)


def reference(owner: Manifest) -> Manifest:
    """As an ownerReference."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


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


def _container(job: Manifest) -> Manifest:
    containers = job["spec"]["template"]["spec"]["containers"]
    found: Manifest = next(each for each in containers if each.get("name") == TRAINER_CONTAINER)
    return found


def _port(container: Manifest) -> int:
    ports = container.get("ports") or []
    return next((each["containerPort"] for each in ports if each.get("name") == GRPC_PORT_NAME), 0)


def _violations(job: Any) -> list[Violation]:
    path = "trainer_template"
    if not isinstance(job, dict) or (job.get("apiVersion"), job.get("kind")) != ("batch/v1", "Job"):
        return [Violation(path, "allowed is one batch/v1 Job as YAML")]
    found = []
    metadata = job.get("metadata") or {}
    if not metadata.get("name"):
        found.append(Violation(f"{path}.metadata.name", "is missing"))
    if INSTANCE_LABEL not in (metadata.get("labels") or {}):
        found.append(
            Violation(
                f"{path}.metadata.labels",
                f"has no {INSTANCE_LABEL}, which tells this installation's objects from others'",
            )
        )
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    path = f"{path}.spec.template.spec.containers"
    named = [each for each in pod.get("containers") or [] if each.get("name") == TRAINER_CONTAINER]
    if not named:
        return [*found, Violation(path, f"has none named {TRAINER_CONTAINER!r}")]
    path = f"{path}[{TRAINER_CONTAINER}]"
    if not _port(named[0]):
        found.append(Violation(f"{path}.ports", f"has none named {GRPC_PORT_NAME!r}"))
    for probe in ("livenessProbe", "startupProbe"):
        if probe in named[0]:
            found.append(
                Violation(
                    f"{path}.{probe}",
                    "is not allowed; of several machines only the first has a port to probe."
                    " A readinessProbe is",
                )
            )
    return found
