"""The helm command that fits a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from podium.cli.install.cluster import JOB_SETS, MONITORS, RULES, Cluster, Node

# Of charts/podium/ci/: GPUs of the largest node, of all nodes, and the file that they suffice for.
_FILES = ((8, 8, "eight-gpus"), (1, 2, "one-gpu"))
GPU_TAINT = "nvidia.com/gpu"
"""What those files tolerate."""
GPU_LABEL = "nvidia.com/gpu.count"
GPU_RUNTIME = "nvidia"
HUB_SECRET = "hugging-face"
"""What the file for eight GPUs names."""
_OPENSHIFT = "securitycontextconstraints.security.openshift.io"
_OPENSHIFT_DNS = (
    '[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}]'
)


@dataclass(frozen=True)
class Wish:
    """What is to be installed, and where."""

    release: str
    namespace: str
    kube_context: str
    chart: str
    gpu: str
    """Name of a GPU among a node's resources."""


def values_file(cluster: Cluster) -> str:
    """The case of charts/podium/ci/ for the cluster's GPUs; empty for the chart's own, on CPUs."""
    gpus = [node.gpus for node in cluster.nodes or ()]
    for largest, total, name in _FILES:
        if max(gpus, default=0) >= largest and sum(gpus) >= total:
            return name
    return ""


def helm_command(cluster: Cluster, wish: Wish) -> list[str]:
    """`helm install` (`upgrade`, where the release is there) with the values that fit."""
    case = values_file(cluster)
    command = ["helm", "upgrade" if cluster.release_exists else "install", wish.release, wish.chart]
    command += ["--namespace", wish.namespace]
    if not cluster.namespace_exists:
        command.append("--create-namespace")
    if wish.kube_context:
        command += ["--kube-context", wish.kube_context]
    if case:
        command += ["--values", f"{wish.chart.rstrip('/')}/ci/{case}-values.yaml"]
    for setting in (
        *_monitoring(cluster),
        *_storage(cluster, case),
        *_gpus(cluster, wish, case),
        *_job_sets(cluster),
        *(["fixedUserIds=false"] if is_openshift(cluster) else []),
    ):
        command += ["--set", setting]
    if is_openshift(cluster):
        command += ["--set-json", f"networkPolicy.dns={_OPENSHIFT_DNS}"]
    if case == "eight-gpus" and not labelled(cluster):
        command += ["--set-json", "podDefaults.nodeSelector={}"]
    return [*command, "--wait", "--timeout", "30m"]


def largest(cluster: Cluster) -> list[Node]:
    """The nodes with as many GPUs as any."""
    most = max((node.gpus for node in cluster.nodes or ()), default=0)
    return [node for node in cluster.nodes or () if most and node.gpus == most]


def labelled(cluster: Cluster) -> bool:
    """Whether a node has the label that the file for eight GPUs selects."""
    return any(node.labels.get(GPU_LABEL) == "8" for node in largest(cluster))


def monitored(cluster: Cluster) -> tuple[bool, bool]:
    """Whether there may be a PodMonitor, and a PrometheusRule."""
    kinds = {"podmonitors": MONITORS, "prometheusrules": RULES}
    monitor, rule = (
        f"{kind}.monitoring.coreos.com" in cluster.resources and right not in cluster.denied
        for kind, right in kinds.items()
    )
    return monitor, rule


def is_openshift(cluster: Cluster) -> bool:
    """Whether namespaces have users of their own, and names are resolved by OpenShift's pods."""
    return _OPENSHIFT in cluster.resources


def grants_job_sets(cluster: Cluster) -> bool:
    """Whether the controller can be given the right to make JobSets."""
    return cluster.denied.isdisjoint(JOB_SETS)


def _job_sets(cluster: Cluster) -> Sequence[str]:
    return [] if grants_job_sets(cluster) else ["trainer.jobSet=never"]


def _monitoring(cluster: Cluster) -> Sequence[str]:
    names = ("monitoring.podMonitor.enabled=true", "monitoring.rules.enabled=true")
    return [name for name, there in zip(names, monitored(cluster), strict=True) if there]


def _storage(cluster: Cluster, case: str) -> Sequence[str]:
    """A class by name, where claims that name none would wait for ever."""
    if cluster.default_storage or not cluster.storage_classes:
        return []
    first = cluster.storage_classes[0]
    claims = ["database.internal", "registry", *(["modelCache"] if case == "eight-gpus" else [])]
    return [f"{claim}.persistence.storageClass={first}" for claim in claims]


def _gpus(cluster: Cluster, wish: Wish, case: str) -> Sequence[str]:
    settings = [f"gpu.resourceName={wish.gpu}"] if case and wish.gpu != GPU_TAINT else []
    if case == "eight-gpus":
        if GPU_RUNTIME not in (cluster.runtime_classes or ()):
            settings.append("podDefaults.runtimeClassName=")
        if HUB_SECRET not in cluster.secrets:
            settings.append("modelCache.existingSecret=")
    return settings
