"""The objects of a small cluster that `podium install` looks at."""

from __future__ import annotations

from typing import Any

MONITORED = frozenset(
    {"podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com"}
)


def objects() -> list[dict[str, Any]]:
    """A node with two GPUs, another that takes no pods, and a storage class."""
    status = {
        "allocatable": {"nvidia.com/gpu": "2"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "status": status}
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return [
        {**node, "metadata": {"name": "a"}, "spec": {"taints": []}},
        {**node, "metadata": {"name": "b"}, "spec": {"unschedulable": True}},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "standard", "annotations": default},
            "provisioner": "example.com/disks",
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "podium"}},
    ]
