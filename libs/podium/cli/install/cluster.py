"""Looks at a cluster through kubectl: what the chart needs, and what it can use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from podium.core.errors import NotFoundError, PermissionDeniedError
from podium.sdk.connection.kubectl import Kubectl, failure

T = TypeVar("T")

_AT_ONCE = 4
_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"

# What `helm install` creates, and what it must hold itself to give it to the controller.
RIGHTS = (
    "create configmaps",
    "create deployments.apps",
    "create networkpolicies.networking.k8s.io",
    "create persistentvolumeclaims",
    "create poddisruptionbudgets.policy",
    "create pods",
    "create rolebindings.rbac.authorization.k8s.io",
    "create roles.rbac.authorization.k8s.io",
    "create secrets",
    "create serviceaccounts",
    "create services",
    "create statefulsets.apps",
    # Helm keeps its releases in Secrets.
    "get secrets",
    "list secrets",
    "update secrets",
    # The controller's Role.
    "create jobs.batch",
    "delete jobs.batch",
    "get jobs.batch",
    "list jobs.batch",
    "watch jobs.batch",
    "get deployments.apps",
    "list deployments.apps",
    "watch deployments.apps",
    "delete deployments.apps",
    "get services",
    "list events",
    "watch events",
    "list pods",
    "watch pods",
)
# Of that Role too, unless trainer.jobSet is never; a namespace's admin may lack them.
JOB_SETS = (
    "create jobsets.jobset.x-k8s.io",
    "delete jobsets.jobset.x-k8s.io",
    "get jobsets.jobset.x-k8s.io",
)
FORWARD = "create pods/portforward"
NAMESPACE = "create namespaces"
MONITORS = "create podmonitors.monitoring.coreos.com"
RULES = "create prometheusrules.monitoring.coreos.com"


@dataclass(frozen=True)
class Node:
    """A node that takes pods."""

    name: str
    gpus: int
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    """Keys of those that keep pods away that do not tolerate them."""


@dataclass(frozen=True)
class Cluster:
    """What was found. None stands for what one is not allowed to look at."""

    version: str
    """As v1.31.2."""
    resources: frozenset[str]
    """Of the API, as podmonitors.monitoring.coreos.com."""
    nodes: tuple[Node, ...] | None
    storage_classes: tuple[str, ...] | None
    default_storage: str
    runtime_classes: tuple[str, ...] | None
    namespace_exists: bool | None
    release_exists: bool
    secrets: frozenset[str]
    """Names of those of the wanted ones that are there."""
    denied: frozenset[str]
    """Of the rights above, those that one has not."""

    @property
    def numbers(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = self.version.lstrip("v").split(".")[:2]
        return int(major), int("".join(filter(str.isdigit, minor)) or 0)


async def look(kubectl: Kubectl, release: str, gpu: str, secrets: Sequence[str]) -> Cluster:
    """Asks the API server.

    Args:
        gpu: name of a GPU among a node's resources.
        secrets: names of Secrets to look for.

    Raises:
        PodiumError: as `Kubectl.run`.
    """
    # First alone: what is wrong with the connection is then told once.
    version = json.loads(await kubectl.run("get", "--raw=/version"))["gitVersion"]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def listed(kind: str, read: Callable[[list[Any]], T]) -> T | None:
        try:
            async with gate:
                return read(json.loads(await kubectl.run("get", kind, "--output=json"))["items"])
        except PermissionDeniedError:
            return None

    async def exists(kind: str, name: str) -> bool | None:
        try:
            async with gate:
                await kubectl.run("get", kind, name, "--output=json")
        except NotFoundError:
            return False
        except PermissionDeniedError:
            return None
        return True

    async def installed() -> bool:
        """Whether helm has a release of that name; False where one may not look."""
        owned = f"--selector=owner=helm,name={release}"
        try:
            async with gate:
                return bool((await kubectl.run("get", "secrets", owned, "--output=name")).strip())
        except PermissionDeniedError:
            return False

    async def resources() -> frozenset[str]:
        async with gate:
            _, out, words = await kubectl.attempt("api-resources", "--output=name")
        # One API of many that does not answer makes it fail with all the others told.
        if not out.strip():
            raise failure(words)
        return frozenset(out.split())

    async def may(right: str) -> bool:
        async with gate:
            _, out, words = await kubectl.attempt("auth", "can-i", *right.split())
        if not out.strip():
            raise failure(words)
        return out.startswith("yes")

    async def denials() -> frozenset[str]:
        # Whoever may everything need not be asked about each.
        rights: Sequence[str] = (*RIGHTS, *JOB_SETS, FORWARD, NAMESPACE, MONITORS, RULES)
        if await may("* *"):
            rights = (NAMESPACE,)
        answers = await asyncio.gather(*map(may, rights))
        return frozenset(right for right, yes in zip(rights, answers, strict=True) if not yes)

    try:
        async with asyncio.TaskGroup() as group:
            classes = group.create_task(listed("storageclasses", _storage))
            nodes = group.create_task(listed("nodes", lambda items: _nodes(items, gpu)))
            runtimes = group.create_task(listed("runtimeclasses", _names))
            api = group.create_task(resources())
            namespace = group.create_task(exists("namespace", kubectl.namespace))
            there = group.create_task(installed())
            wanted = {name: group.create_task(exists("secret", name)) for name in secrets}
            denied = group.create_task(denials())
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    storage = classes.result()
    return Cluster(
        version=version,
        resources=api.result(),
        nodes=nodes.result(),
        storage_classes=storage[0] if storage else None,
        default_storage=storage[1] if storage else "",
        runtime_classes=runtimes.result(),
        namespace_exists=namespace.result(),
        release_exists=there.result(),
        secrets=frozenset(name for name, task in wanted.items() if task.result()),
        denied=denied.result(),
    )


def _names(items: list[Any]) -> tuple[str, ...]:
    return tuple(sorted(item["metadata"]["name"] for item in items))


def _storage(items: list[Any]) -> tuple[tuple[str, ...], str]:
    """All names, and the default's."""
    default = [
        item
        for item in items
        if item["metadata"].get("annotations", {}).get(_DEFAULT_CLASS) == "true"
    ]
    # Kubernetes takes the newest of several.
    default.sort(key=lambda item: str(item["metadata"].get("creationTimestamp", "")))
    return _names(items), default[-1]["metadata"]["name"] if default else ""


def _nodes(items: list[Any], gpu: str) -> tuple[Node, ...]:
    ready = [
        item
        for item in items
        if not item["spec"].get("unschedulable")
        and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in item["status"].get("conditions", ())
        )
    ]
    return tuple(
        Node(
            name=item["metadata"]["name"],
            gpus=int(item["status"].get("allocatable", {}).get(gpu, 0)),
            labels=item["metadata"].get("labels", {}),
            taints=tuple(
                taint["key"]
                for taint in item["spec"].get("taints", ())
                if taint["effect"] != "PreferNoSchedule"
            ),
        )
        for item in ready
    )
