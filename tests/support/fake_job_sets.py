"""A double of the JobSet controller: it makes, suspends and resumes a JobSet's Jobs."""

from __future__ import annotations

import copy
from typing import Any

from podium.kit.kubernetes.api import JOBS, SERVICES, Resource
from podium_controller.cluster.jobset import JOBSETS
from support.fake_api import FakeApi

Manifest = dict[str, Any]


class FakeJobSets(FakeApi):
    """A namespace of a cluster that has JobSets."""

    def __init__(self) -> None:
        super().__init__()
        self.apis = {"jobset.x-k8s.io", JOBSETS.api_version}
        self.at_work = True
        """Whether the controller runs."""

    def put(self, resource: Resource, item: Manifest) -> None:
        super().put(resource, item)
        if resource is JOBSETS:
            self.reconcile()

    def reconcile(self) -> None:
        """What the controller does at news of a JobSet."""
        for made in self.of(JOBSETS) if self.at_work else ():
            if "deletionTimestamp" not in made["metadata"]:
                self._reconcile(made)

    def _reconcile(self, made: Manifest) -> None:
        spec, set_name = made["spec"], made["metadata"]["name"]
        network = spec["network"]
        by_set = {"jobset.sigs.k8s.io/jobset-name": set_name}
        if network["enableDNSHostnames"] and ("services", network["subdomain"]) not in self.objects:
            self.put(
                SERVICES,
                {
                    "metadata": {"name": network["subdomain"], **self._owned(made)},
                    "spec": {
                        "clusterIP": "None",
                        "selector": by_set,
                        "publishNotReadyAddresses": network["publishNotReadyAddresses"],
                    },
                },
            )
        for replicated in spec["replicatedJobs"]:
            for index in range(replicated["replicas"]):
                name = f"{set_name}-{replicated['name']}-{index}"
                job = copy.deepcopy(self.objects.get(("jobs", name), replicated["template"]))
                # Of a former JobSet of that name too: Jobs are found by their owner's name.
                if "name" not in job["metadata"]:
                    job["metadata"] |= {"name": name, **self._owned(made)}
                    job["metadata"]["labels"] |= by_set
                    pod = job["spec"]["template"]
                    pod["metadata"]["labels"] |= by_set
                    if network["enableDNSHostnames"]:
                        pod["spec"]["subdomain"] = network["subdomain"]
                if job["spec"].get("suspend") != spec["suspend"]:
                    job["spec"]["suspend"] = spec["suspend"]
                    self.put(JOBS, job)

    def _owned(self, made: Manifest) -> Manifest:
        owner = {
            "apiVersion": JOBSETS.api_version,
            "kind": "JobSet",
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {"ownerReferences": [owner]}
