"""What was found in a cluster, in words, with what follows from it."""

from __future__ import annotations

import shutil

from podium.cli.findings import Finding
from podium.cli.install.cluster import FORWARD, MONITORS, NAMESPACE, RIGHTS, RULES, Cluster
from podium.cli.install.values import (
    GPU_TAINT,
    Wish,
    grants_job_sets,
    is_openshift,
    labelled,
    largest,
    monitored,
    values_file,
)

MINIMUM = (1, 29)


def findings(cluster: Cluster, wish: Wish) -> list[Finding]:
    """One for each thing that was looked at, in the order in which they matter."""
    return [
        _version(cluster),
        _rights(cluster, wish),
        _namespace(cluster, wish),
        _release(cluster, wish),
        _storage(cluster),
        _nodes(cluster),
        _gpus(cluster, wish),
        *_monitoring(cluster),
        _metrics(cluster),
        *_schedulers(cluster),
        *_openshift(cluster),
        _gitops(cluster),
        Finding(
            "info",
            "network",
            "whether NetworkPolicies are enforced cannot be checked",
            "The chart's are kept by plugins such as Calico or Cilium; others store them and let "
            "everything through.",
        ),
        Finding(
            "info",
            "images",
            "whether nodes can pull the images cannot be checked",
            "'make images' builds them; name the registry that you push them to with --set "
            "image.registry=HOST.",
        ),
        _forward(cluster),
        _helm(),
    ]


def _version(cluster: Cluster) -> Finding:
    wanted = ".".join(map(str, MINIMUM))
    if cluster.numbers < MINIMUM:
        return Finding(
            "fail",
            "kubernetes",
            f"{cluster.version}; the chart needs {wanted} or later",
            "Upgrade the cluster, or choose another with --kube-context.",
        )
    return Finding("ok", "kubernetes", f"{cluster.version} ({wanted} or later is needed)")


def _rights(cluster: Cluster, wish: Wish) -> Finding:
    missing = [right for right in RIGHTS if right in cluster.denied]
    if missing:
        return Finding(
            "fail",
            "rights",
            f"you may not, in namespace {wish.namespace}: {', '.join(missing)}",
            "Ask for the role admin in that namespace, or have somebody who has it install.",
        )
    return Finding("ok", "rights", f"you may create all that the chart has in {wish.namespace}")


def _namespace(cluster: Cluster, wish: Wish) -> Finding:
    if cluster.namespace_exists is None:
        return Finding(
            "info",
            "namespace",
            f"you may not look whether {wish.namespace} exists",
            "Leave --create-namespace out if it does.",
        )
    if cluster.namespace_exists:
        return Finding("ok", "namespace", f"{wish.namespace} exists")
    if NAMESPACE in cluster.denied:
        return Finding(
            "fail",
            "namespace",
            f"there is no {wish.namespace}, and you may not create it",
            "Have it created, or name another with --namespace.",
        )
    return Finding("ok", "namespace", f"{wish.namespace} is to be created")


def _release(cluster: Cluster, wish: Wish) -> Finding:
    if cluster.release_exists:
        return Finding(
            "warn",
            "release",
            f"{wish.release} is installed there already",
            f"The command below upgrades it; give what you set then again, which 'helm get values "
            f"{wish.release} --namespace {wish.namespace}' shows.",
        )
    return Finding("ok", "release", f"there is no {wish.release} yet")


def _storage(cluster: Cluster) -> Finding:
    if cluster.storage_classes is None:
        return Finding(
            "info",
            "storage",
            "you may not look at storage classes",
            "Database and registry need one that is the default, or named in their "
            "persistence.storageClass.",
        )
    if cluster.default_storage:
        return Finding("ok", "storage", f"{cluster.default_storage} is the default class")
    if cluster.storage_classes:
        return Finding(
            "warn",
            "storage",
            f"no class is the default; there are: {', '.join(cluster.storage_classes)}",
            "The command below names the first; choose.",
        )
    return Finding(
        "fail",
        "storage",
        "there is no storage class",
        "Install a provisioner. Without one: a database of your own (database.existingSecret), and "
        "registry.persistence.existingClaim, or an object store and "
        "registry.persistence.enabled=false.",
    )


def _nodes(cluster: Cluster) -> Finding:
    if cluster.nodes is None:
        return Finding("info", "nodes", "you may not look at nodes")
    if not cluster.nodes:
        return Finding("fail", "nodes", "no node is ready and takes pods")
    return Finding("ok", "nodes", f"{len(cluster.nodes)} ready")


def _gpus(cluster: Cluster, wish: Wish) -> Finding:
    if cluster.nodes is None:
        return Finding(
            "info",
            wish.gpu,
            "unknown: the command below is for CPUs",
            "For GPUs, give one of charts/podium/ci/*-gpu*-values.yaml with --values.",
        )
    total = sum(node.gpus for node in cluster.nodes)
    if not total:
        return Finding(
            "info",
            wish.gpu,
            "no node has any: models run on CPUs, which is enough for a first try",
            "For GPUs, install the vendor's device plugin or operator; --gpu-resource names "
            "another resource.",
        )
    with_gpus = sum(1 for node in cluster.nodes if node.gpus)
    most = largest(cluster)[0].gpus
    detail = f"{total} on {with_gpus} node{'s' if with_gpus > 1 else ''}, up to {most} on one"
    if not values_file(cluster):
        return Finding(
            "warn",
            wish.gpu,
            f"{detail}: the command below is for CPUs",
            "A pool and a trainer need one each; NVIDIA's device plugin offers one twice by "
            "time-slicing.",
        )
    others = sorted({key for node in largest(cluster) for key in node.taints} - {GPU_TAINT})
    if others:
        return Finding(
            "warn",
            wish.gpu,
            f"{detail}, behind taints: {', '.join(others)}",
            "Tolerate them in podDefaults.tolerations.",
        )
    if values_file(cluster) == "eight-gpus" and not labelled(cluster):
        return Finding("ok", wish.gpu, f"{detail}; not labelled, so any node is taken")
    return Finding("ok", wish.gpu, detail)


def _monitoring(cluster: Cluster) -> list[Finding]:
    kinds = (("PodMonitor", "podMonitor", MONITORS), ("PrometheusRule", "rules", RULES))
    found = []
    for (name, value, right), usable in zip(kinds, monitored(cluster), strict=True):
        if usable:
            found.append(
                Finding(
                    "ok",
                    name,
                    "its CRD is there",
                    f"A Prometheus that chooses by labels finds it by monitoring.{value}.labels.",
                )
            )
        elif right.removeprefix("create ") in cluster.resources:
            found.append(Finding("warn", name, f"its CRD is there, but you may not {right}"))
        else:
            found.append(
                Finding(
                    "info",
                    name,
                    "there is no such CRD: the chart is installed without",
                    "Install Prometheus' operator, or tell your Prometheus where the pods are.",
                )
            )
    return found


def _metrics(cluster: Cluster) -> Finding:
    if "pods.metrics.k8s.io" in cluster.resources:
        return Finding("ok", "metrics API", "rollout and judge can scale on CPU (autoscaling)")
    return Finding(
        "info",
        "metrics API",
        "not there: rollout.autoscaling and judge.autoscaling would never scale",
        "Install metrics-server.",
    )


def _schedulers(cluster: Cluster) -> list[Finding]:
    kueue = "localqueues.kueue.x-k8s.io" in cluster.resources
    workers = "leaderworkersets.leaderworkerset.x-k8s.io" in cluster.resources
    return [
        Finding("ok", "Kueue", "jobs that name a queue (trainer.queue) wait in it")
        if kueue
        else Finding("info", "Kueue", "not there: jobs that name a queue are refused"),
        _job_sets(cluster),
        Finding("ok", "LeaderWorkerSet", "a pool may span several nodes (pools[].nodes)")
        if workers
        else Finding(
            "info",
            "LeaderWorkerSet",
            "not there: a pool is as large as one node at most",
            "pools[].nodes needs it (https://lws.sigs.k8s.io).",
        ),
    ]


def _job_sets(cluster: Cluster) -> Finding:
    if not grants_job_sets(cluster):
        return Finding(
            "info",
            "JobSet",
            "you may not give the controller rights to it: trainers are Jobs",
            "The command below says trainer.jobSet=never.",
        )
    if "jobsets.jobset.x-k8s.io" in cluster.resources:
        return Finding("ok", "JobSet", "each trainer is made by one (trainer.jobSet)")
    return Finding("info", "JobSet", "not there: trainers are Jobs")


def _openshift(cluster: Cluster) -> list[Finding]:
    if not is_openshift(cluster):
        return []
    words = "pods run as the namespace's users, and names are resolved by its DNS"
    return [Finding("ok", "OpenShift", words, "docs/how-to/strict-clusters.md has more.")]


def _gitops(cluster: Cluster) -> Finding:
    if "trainingjobs.podium.dev" in cluster.resources:
        return Finding(
            "info",
            "TrainingJob",
            "its CRD is there",
            "For gitops.enabled=true, set gitops.installCrd=false if another release brought it.",
        )
    return Finding(
        "info",
        "TrainingJob",
        "there is no such CRD",
        "For jobs as Kubernetes resources, gitops.enabled=true brings it; to create it is an "
        "administrator's right.",
    )


def _forward(cluster: Cluster) -> Finding:
    if FORWARD in cluster.denied:
        return Finding(
            "warn",
            "port-forward",
            "you may not forward ports in that namespace",
            "'podium login' then needs addresses: controller.service.type=LoadBalancer.",
        )
    return Finding("ok", "port-forward", "'podium login' needs no address")


def _helm() -> Finding:
    if shutil.which("helm") is None:
        return Finding("warn", "helm", "not on this machine's PATH", "Install Helm.")
    return Finding("ok", "helm", "on PATH")
