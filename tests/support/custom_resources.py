"""What chart and controller may write into custom resources that they make: what they use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from support.kubernetes_cluster import Cluster, run

MONITORING = ("PodMonitor", "PrometheusRule")

_LABELS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


def _resource(
    api_version: str, kind: str, spec: dict[str, Any], **metadata_too: Any
) -> dict[str, Any]:
    known = {"name": {}, "namespace": {}, "labels": _LABELS}
    metadata = _object([*known], **known, **metadata_too)
    return _object(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )


_RELABELING = _object(
    ["sourceLabels", "targetLabel"],
    action={"enum": ["replace", "keep", "drop"]},
    sourceLabels={
        "type": "array",
        "items": {"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
    },
    targetLabel={"type": "string", "pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
)
_ENDPOINT = _object(
    ["port"],
    port={"type": "string"},
    path={"type": "string"},
    interval={"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
    relabelings={"type": "array", "items": _RELABELING},
)
_RULE = _object(
    ["expr"],
    alert={"type": "string"},
    record={"type": "string", "pattern": "^[a-zA-Z_:][a-zA-Z0-9_:]*$"},
    expr={"type": "string"},
    **{"for": {"type": "string"}},
    keep_firing_for={"type": "string"},
    labels=_LABELS,
    annotations=_LABELS,
)
# A Job's own fields are Kubernetes' to check.
_REPLICATED_JOB = _object(
    ["name", "template"],
    name={"type": "string", "pattern": "^[a-z]([a-z0-9-]*[a-z0-9])?$"},
    replicas={"type": "integer"},
    template=_object(
        ["metadata", "spec"],
        metadata=_object(["labels"], labels=_LABELS, annotations=_LABELS),
        spec={"type": "object"},
    ),
)

# A pod's own fields are Kubernetes' to check.
_POD_TEMPLATE = _object(
    ["metadata", "spec"],
    metadata=_object(["labels"], labels=_LABELS, annotations=_LABELS),
    spec={"type": "object"},
)

_TRIGGER = _object(
    ["type", "metadata"],
    type={"const": "prometheus"},
    # KEDA takes strings alone.
    metadata=_object(
        ["serverAddress", "query", "threshold"],
        serverAddress={"type": "string", "pattern": "^https?://"},
        query={"type": "string"},
        threshold={"type": "string", "pattern": "^[0-9]+$"},
        ignoreNullValues={"enum": ["true", "false"]},
    ),
)

SCHEMAS = {
    "JobSet": _resource(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        _object(
            ["replicatedJobs"],
            suspend={"type": "boolean"},
            failurePolicy=_object(["maxRestarts"], maxRestarts={"type": "integer"}),
            network=_object(
                [],
                enableDNSHostnames={"type": "boolean"},
                subdomain={"type": "string", "maxLength": 63},
                publishNotReadyAddresses={"type": "boolean"},
            ),
            replicatedJobs={"type": "array", "items": _REPLICATED_JOB},
        ),
        ownerReferences={"type": "array"},
    ),
    "LeaderWorkerSet": _resource(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        _object(
            ["leaderWorkerTemplate"],
            replicas={"type": "integer", "minimum": 0},
            startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
            leaderWorkerTemplate=_object(
                ["size", "leaderTemplate", "workerTemplate"],
                size={"type": "integer", "minimum": 1},
                restartPolicy={
                    "enum": ["RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]
                },
                leaderTemplate=_POD_TEMPLATE,
                workerTemplate=_POD_TEMPLATE,
            ),
        ),
    ),
    "ScaledObject": _resource(
        "keda.sh/v1alpha1",
        "ScaledObject",
        _object(
            ["scaleTargetRef", "triggers"],
            scaleTargetRef=_object(["kind", "name"], apiVersion={}, kind={}, name={}),
            minReplicaCount={"type": "integer", "minimum": 0},
            maxReplicaCount={"type": "integer", "minimum": 1},
            cooldownPeriod={"type": "integer", "minimum": 0},
            advanced=_object(
                ["horizontalPodAutoscalerConfig"],
                horizontalPodAutoscalerConfig=_object(
                    ["behavior"],
                    behavior=_object(
                        ["scaleDown"],
                        scaleDown=_object(
                            ["stabilizationWindowSeconds"],
                            stabilizationWindowSeconds={
                                "type": "integer",
                                "minimum": 0,
                                "maximum": 3600,
                            },
                        ),
                    ),
                ),
            ),
            triggers={"type": "array", "minItems": 1, "items": _TRIGGER},
        ),
    ),
    "PodMonitor": _resource(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        _object(
            ["selector", "podMetricsEndpoints"],
            selector=_object(["matchLabels"], matchLabels=_LABELS),
            namespaceSelector=_object(["matchNames"], matchNames={"type": "array"}),
            podMetricsEndpoints={"type": "array", "items": _ENDPOINT},
        ),
    ),
    "PrometheusRule": _resource(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        _object(
            ["groups"],
            groups={
                "type": "array",
                "items": _object(
                    ["name", "rules"],
                    name={"type": "string"},
                    rules={"type": "array", "items": _RULE},
                ),
            },
        ),
    ),
}


def definition(kind: str) -> dict[str, Any]:
    """A CustomResourceDefinition under which the API server stores such objects as they come.

    Their own schemas are the upstream projects'; what Podium writes is held to SCHEMAS.
    """
    group, version = SCHEMAS[kind]["properties"]["apiVersion"]["const"].split("/")
    plural = f"{kind.lower()}s"
    kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": kept, "status": kept},
                        }
                    },
                }
            ],
        },
    }


@contextmanager
def defined(cluster: Cluster, *kinds: str) -> Iterator[None]:
    """Custom resources that the cluster stores inside the block, where it did not before."""
    with ExitStack() as stack:
        there = cluster.kubectl("get", "crd", "--output", "name")
        for kind in kinds:
            custom = definition(kind)
            name = custom["metadata"]["name"]
            if f"/{name}\n" in there:
                continue
            cluster.apply(custom)
            stack.callback(run, ["kubectl", "delete", "crd", name])
            cluster.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=60s")
        yield
