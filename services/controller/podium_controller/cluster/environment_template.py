"""The Deployment and the Service of an environment that is an image."""

from __future__ import annotations

import copy

from podium.kit.kubernetes.object_template import (
    GRPC_PORT_NAME,
    JOB_LABEL,
    Manifest,
    ObjectTemplate,
    reference,
)
from podium.types.v1 import spec_pb2


class EnvironmentTemplate(ObjectTemplate):
    """The apps/v1 Deployment that environments are made from; the README says how."""

    setting = "environment_template"
    api_version = "apps/v1"
    kind = "Deployment"
    container_name = "environment"

    def deployment(
        self, job_id: str, spec: spec_pb2.EnvironmentSpec, owner: Manifest | None = None
    ) -> Manifest:
        """The Deployment of a job's environment.

        Args:
            owner: the object that takes it with it when it goes.
        """
        made = copy.deepcopy(self._manifest)
        labels = self._labels(job_id)
        metadata, body = made["metadata"], made["spec"]
        metadata["name"] = self.name(job_id)
        metadata["labels"][JOB_LABEL] = job_id
        if owner is not None:
            metadata["ownerReferences"] = [reference(owner)]
        body["replicas"] = max(spec.replicas, 1)
        body["selector"] = {"matchLabels": labels}
        pod_labels = body["template"].setdefault("metadata", {}).setdefault("labels", {})
        pod_labels.update(labels)
        self._container(made)["image"] = spec.image
        return made

    def service(self, job_id: str, owner: Manifest) -> Manifest:
        """The headless Service through which the rollout service finds every pod.

        Args:
            owner: the Deployment as the cluster has it.
        """
        ports = [{"name": GRPC_PORT_NAME, "port": self.port, "targetPort": self.port}]
        return self._headless_service(job_id, owner, ports=ports)
