"""The Job and the Service of a trainer, from the template that the installation gives."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Self

from podium.core.errors import InvalidArgumentError, Violation
from podium.kit.kubernetes.object_template import (
    JOB_LABEL,
    Manifest,
    ObjectTemplate,
    load_manifest,
    reference,
)
from podium.types.v1 import spec_pb2

from podium_controller.cluster.pod_status import BAD_SETTINGS, TRAINER_CONTAINER
from podium_controller.cluster.quantity import times
from podium_controller.domain.identifiers import DEFAULT_PROJECT

PROJECT_LABEL = "podium.dev/project"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUED_LABEL = "podium.dev/queue"
"""Of a Job that waits in the queue as part of something else, and not by itself."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
RENDEZVOUS_PORT = 29500

_DEFAULT_RESTARTS = 6
_BY_PROCESS = {"cpu", "memory"}
# Of the machines that wait for the last one's pod to start.
_RENDEZVOUS_SECONDS = 24 * 3600


class TrainerTemplate(ObjectTemplate):
    """A batch/v1 Job that every trainer is made from; services/controller/README.md says how."""

    setting = "trainer_template"
    api_version = "batch/v1"
    kind = "Job"
    container_name = TRAINER_CONTAINER

    def __init__(
        self, job: Manifest, gpu_resource: str, by_pool: Mapping[str, Manifest] | None = None
    ) -> None:
        """
        Args:
            gpu_resource: how nodes name their GPUs, such as nvidia.com/gpu.
            by_pool: the Job of each pool's trainers, one of them `job`; None where `job` is
                for all. They may differ in all but their names, labels, ports, GPUs and
                `backoffLimit`.

        Raises:
            InvalidArgumentError: no trainer can be made from them.
        """
        super().__init__(job)
        self._gpu_resource = gpu_resource
        self._by_pool = by_pool
        found = [
            Violation(f"{self.setting}/{pool}.yaml", "differs from the others in its " + what)
            for pool, other in (by_pool or {}).items()
            for what in self._differences(other)
        ]
        if found:
            raise InvalidArgumentError(violations=found)
        self.restarts: int = job["spec"].get("backoffLimit", _DEFAULT_RESTARTS)
        """How often each machine may crash."""

    @classmethod
    def of_pools(cls, path: Path, gpu_resource: str, pools: Collection[str]) -> Self:
        """Reads a file that is for all pools, or from a folder POOL.yaml for each.

        Raises:
            InvalidArgumentError: one is not there, is no YAML, or nothing can be made from it.
        """
        if not path.is_dir():
            return cls.load(path, gpu_resource)
        jobs = {pool: load_manifest(cls.setting, path / f"{pool}.yaml") for pool in pools}
        for job in jobs.values():
            cls(job, gpu_resource)
        return cls(next(iter(jobs.values())), gpu_resource, jobs)

    def gpus(self, spec: spec_pb2.TrainerSpec) -> int:
        """GPUs of all pods of a trainer."""
        own = self._own_gpus(self._manifest)
        return max(spec.nodes, 1) * (spec.gpus_per_node if spec.HasField("gpus_per_node") else own)

    def job(
        self,
        job_id: str,
        spec: spec_pb2.TrainerSpec,
        owner: Manifest | None = None,
        *,
        name: str = "",
        project: str = DEFAULT_PROJECT,
        pool: str = "",
    ) -> Manifest:
        """The Indexed Job of a job's trainer.

        Args:
            owner: the object that takes it with it when it goes.
            name: that it is to have; empty for that of all the job's objects.
            project: for a label, by which a cluster's own tools may tell them apart.
            pool: where the job runs, whose model the trainer needs.

        Raises:
            InvalidArgumentError: there is no Job for the pool.
        """
        job = copy.deepcopy(self._of_pool(pool))
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

    def _of_pool(self, pool: str) -> Manifest:
        if self._by_pool is None:
            return self._manifest
        if pool not in self._by_pool:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        self.setting,
                        f"got the pool {pool!r}; allowed is one of {', '.join(self._by_pool)}",
                    )
                ]
            )
        return self._by_pool[pool]

    def _differences(self, other: Manifest) -> list[str]:
        """What of another pool's Job is not as here, and must be."""
        mine, theirs = self._manifest, other
        alike = {
            "metadata": (mine["metadata"], theirs["metadata"]),
            "backoffLimit": (mine["spec"].get("backoffLimit"), theirs["spec"].get("backoffLimit")),
            "ports": (self._container(mine)["ports"], self._container(theirs)["ports"]),
            self._gpu_resource: (self._own_gpus(mine), self._own_gpus(theirs)),
        }
        return [what for what, (one, two) in alike.items() if one != two]

    def _own_gpus(self, job: Manifest) -> int:
        limits = (self._container(job).get("resources") or {}).get("limits") or {}
        return int(limits.get(self._gpu_resource) or 0)

    def _gpus(self, container: Manifest, spec: spec_pb2.TrainerSpec) -> int:
        """Sets the GPUs of a machine; returns its processes, one a GPU.

        The template's CPUs and memory are for its own GPUs. Each process holds a model, so more
        GPUs bring more of both, and fewer no less: what all processes hold together stays.
        """
        resources = container.setdefault("resources", {})
        limits = resources.setdefault("limits", {})
        own = int(limits.get(self._gpu_resource) or 1)
        if spec.HasField("gpus_per_node"):
            limits[self._gpu_resource] = spec.gpus_per_node
            (resources.get("requests") or {}).pop(self._gpu_resource, None)
        processes = int(limits.get(self._gpu_resource) or 1)
        more = -(-processes // own)
        if more > 1:
            for part in (limits, resources.get("requests") or {}):
                part.update({each: times(part[each], more) for each in _BY_PROCESS & part.keys()})
        return processes

    def _container_violations(self, path: str, container: Manifest) -> list[Violation]:
        found = [
            Violation(
                f"{path}.{probe}",
                "is not allowed; of several machines only the first has a port to probe."
                " A readinessProbe is",
            )
            for probe in ("livenessProbe", "startupProbe")
            if probe in container
        ]
        for part, amounts in (container.get("resources") or {}).items():
            for each in _BY_PROCESS & (amounts or {}).keys() if part != "claims" else ():
                try:
                    times(amounts[each], 1)
                except ValueError as error:
                    found.append(Violation(f"{path}.resources.{part}.{each}", str(error)))
        return found


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
