"""The Deployment and the Service of an environment that is an image."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from podium.core.errors import InvalidArgumentError, Violation
from podium.types.v1 import spec_pb2

from podium_controller.cluster.template import (
    GRPC_PORT_NAME,
    INSTANCE_LABEL,
    JOB_LABEL,
    SELECTED_LABELS,
    Manifest,
    object_name,
    reference,
)

CONTAINER = "environment"


class EnvironmentTemplate:
    """The apps/v1 Deployment that environments are made from; the README says how."""

    def __init__(self, deployment: Manifest) -> None:
        """
        Raises:
            InvalidArgumentError: no environment can be made from it.
        """
        found = _violations(deployment)
        if found:
            raise InvalidArgumentError(violations=found)
        self._deployment = deployment
        labels = deployment["metadata"]["labels"]
        self._selected = {key: labels[key] for key in SELECTED_LABELS if key in labels}
        self.port: int = _port(_container(deployment))

    @classmethod
    def load(cls, path: Path) -> EnvironmentTemplate:
        """Reads the file.

        Raises:
            InvalidArgumentError: it is not there, is no YAML, or no environment
                can be made from it.
        """
        try:
            deployment = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            found = Violation("environment_template", f"got {str(path)!r}: {error}")
            raise InvalidArgumentError(violations=[found]) from error
        return cls(deployment)

    @property
    def selector(self) -> str:
        """Label selector of every object that is made from it."""
        return ",".join([*(f"{key}={value}" for key, value in self._selected.items()), JOB_LABEL])

    def name(self, job_id: str) -> str:
        """The name of a job's objects."""
        return object_name(self._deployment["metadata"]["name"], job_id)

    def is_ours(self, found: Manifest, job_id: str) -> bool:
        """Whether an object of that name is this installation's, for this job."""
        labels = found["metadata"].get("labels") or {}
        wanted = {**self._selected, JOB_LABEL: job_id}
        return all(labels.get(key) == value for key, value in wanted.items())

    def deployment(
        self, job_id: str, spec: spec_pb2.EnvironmentSpec, owner: Manifest | None = None
    ) -> Manifest:
        """The Deployment of a job's environment.

        Args:
            owner: the object that takes it with it when it goes.
        """
        made = copy.deepcopy(self._deployment)
        labels = {**self._selected, JOB_LABEL: job_id}
        metadata, body = made["metadata"], made["spec"]
        metadata["name"] = self.name(job_id)
        metadata["labels"][JOB_LABEL] = job_id
        if owner is not None:
            metadata["ownerReferences"] = [reference(owner)]
        body["replicas"] = max(spec.replicas, 1)
        body["selector"] = {"matchLabels": labels}
        pod_labels = body["template"].setdefault("metadata", {}).setdefault("labels", {})
        pod_labels.update(labels)
        _container(made)["image"] = spec.image
        return made

    def service(self, job_id: str, owner: Manifest) -> Manifest:
        """The headless Service through which the rollout service finds every pod.

        Args:
            owner: the Deployment as the cluster has it.
        """
        labels = {**self._selected, JOB_LABEL: job_id}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": self.name(job_id),
                "labels": labels,
                "ownerReferences": [reference(owner)],
            },
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                "ports": [{"name": GRPC_PORT_NAME, "port": self.port, "targetPort": self.port}],
            },
        }


def _container(deployment: Manifest) -> Manifest:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    found: Manifest = next(each for each in containers if each.get("name") == CONTAINER)
    return found


def _port(container: Manifest) -> int:
    ports = container.get("ports") or []
    return next((each["containerPort"] for each in ports if each.get("name") == GRPC_PORT_NAME), 0)


def _violations(deployment: Any) -> list[Violation]:
    path = "environment_template"
    kind = ("apps/v1", "Deployment")
    if not isinstance(deployment, dict) or (
        (deployment.get("apiVersion"), deployment.get("kind")) != kind
    ):
        return [Violation(path, "allowed is one apps/v1 Deployment as YAML")]
    found = []
    metadata = deployment.get("metadata") or {}
    if not metadata.get("name"):
        found.append(Violation(f"{path}.metadata.name", "is missing"))
    if INSTANCE_LABEL not in (metadata.get("labels") or {}):
        found.append(
            Violation(
                f"{path}.metadata.labels",
                f"has no {INSTANCE_LABEL}, which tells this installation's objects from others'",
            )
        )
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    path = f"{path}.spec.template.spec.containers"
    named = [each for each in pod.get("containers") or [] if each.get("name") == CONTAINER]
    if not named:
        return [*found, Violation(path, f"has none named {CONTAINER!r}")]
    if not _port(named[0]):
        found.append(Violation(f"{path}[{CONTAINER}].ports", f"has none named {GRPC_PORT_NAME!r}"))
    return found
