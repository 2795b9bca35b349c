"""What a rendered chart says about pods: their templates, and which may reach which."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

COMPONENT = "app.kubernetes.io/component"
GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
SELECTORS = {"app.kubernetes.io/name", "app.kubernetes.io/instance", COMPONENT}

Object = dict[str, Any]

KUBERNETES = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34")
"""The versions that the chart is held to."""


@dataclass(frozen=True)
class Pod:
    """A pod, or the template of many."""

    name: str
    labels: Mapping[str, str]
    spec: Object

    @property
    def component(self) -> str:
        return self.labels[COMPONENT]

    @property
    def containers(self) -> list[Object]:
        """Init containers too."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def trainer_jobs(objects: Sequence[Object]) -> dict[str, Object]:
    """The Jobs that the controller is given to make trainers from, by pool."""
    (found,) = (o for o in of_kind(objects, "ConfigMap") if _is_of_trainers(o))
    files = found["data"].items()
    return {name.removesuffix(".yaml"): yaml.safe_load(text) for name, text in files}


def trainer_job(objects: Sequence[Object]) -> Object:
    """That of the first pool."""
    return next(iter(trainer_jobs(objects).values()))


def _is_of_trainers(item: Object) -> bool:
    return bool(item["metadata"]["labels"][COMPONENT] == "trainer")


def environment_deployment(objects: Sequence[Object]) -> Object:
    """The Deployment that the controller is given to make environments from."""
    (found,) = (o for o in of_kind(objects, "ConfigMap") if "environment.yaml" in o["data"])
    deployment: Object = yaml.safe_load(found["data"]["environment.yaml"])
    return deployment


def pods(objects: Sequence[Object]) -> list[Pod]:
    """Every pod and pod template, those of trainers and environments among them.

    Of a LeaderWorkerSet the leader and a worker of its first group.
    """
    found = []
    for item in [*objects, *trainer_jobs(objects).values(), environment_deployment(objects)]:
        template = item if item["kind"] == "Pod" else item.get("spec", {}).get("template")
        if template is not None and "containers" in template.get("spec", {}):
            labels = template["metadata"]["labels"]
            found.append(Pod(item["metadata"]["name"], labels, template["spec"]))
    return found + [
        pod for item in of_kind(objects, "LeaderWorkerSet") for pod in group_pods(item, 0)
    ]


def group_pods(item: Object, index: int) -> list[Pod]:
    """The leader and a worker of a LeaderWorkerSet's group, as they come to be there.

    LeaderWorkerSet labels them and gives them variables, which Kubernetes puts into others.
    """
    name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
    group = item["spec"]["leaderWorkerTemplate"]
    labels = {GROUP_NAME: name, GROUP_INDEX: str(index)}
    found = []
    for rank, kind in enumerate(("leaderTemplate", "workerTemplate")):
        spec = copy.deepcopy(group[kind]["spec"])
        variables = {
            "$(LWS_LEADER_ADDRESS)": f"{name}-{index}.{name}.{namespace}",
            "$(LWS_GROUP_SIZE)": str(group["size"]),
            "$(LWS_WORKER_INDEX)": str(rank),
        }
        for variable in spec["containers"][0]["env"]:
            if variable.get("value") in variables:
                variable["value"] = variables[variable["value"]]
        pod = f"{name}-{index}-{rank}" if rank else f"{name}-{index}"
        found.append(Pod(pod, {**group[kind]["metadata"]["labels"], **labels}, spec))
    return found


def env_of(component: str, objects: Sequence[Object]) -> dict[str, str]:
    """The variables of a component's first container."""
    (found,) = (pod for pod in pods(objects) if pod.component == component)
    return {each["name"]: each.get("value") for each in found.containers[0]["env"]}


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    """The objects of one kind."""
    return [item for item in objects if item["kind"] == kind]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """As a Kubernetes label selector; an empty one selects everything."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In", expression
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    return True


def edges(objects: Sequence[Object]) -> set[tuple[str, str, int]]:
    """(from, to, port) of everything between the chart's own pods that its policies let through.

    As a network plugin decides: a pod that some policy selects sends or takes what one of its
    rules allows, and both ends must allow.
    """
    every = pods(objects)
    return {
        (source.component, target.component, port)
        for source in every
        for target in every
        for port in _ports(target)
        if reaches(objects, source, target, port)
    }


def reaches(objects: Sequence[Object], source: Pod, target: Pod, port: int) -> bool:
    """Whether the policies let one pod through to a port of another."""
    policies = of_kind(objects, "NetworkPolicy")
    return _allowed(policies, "egress", source, target, port) and _allowed(
        policies, "ingress", target, source, port
    )


def _ports(pod: Pod) -> Iterator[int]:
    for container in pod.spec["containers"]:
        for port in container.get("ports", []):
            yield port["containerPort"]


def _allowed(policies: Sequence[Object], way: str, pod: Pod, peer: Pod, port: int) -> bool:
    mine = [
        policy["spec"]
        for policy in policies
        if selects(policy["spec"]["podSelector"], pod.labels)
        and way.capitalize() in policy["spec"]["policyTypes"]
    ]
    if not mine:
        return True
    peers_key = "to" if way == "egress" else "from"
    for spec in mine:
        for rule in spec.get(way) or []:
            numbers = [p["port"] for p in rule.get("ports", [])]
            if numbers and port not in numbers:
                continue
            if any(_matches(item, peer) for item in rule.get(peers_key, [{"podSelector": {}}])):
                return True
    return False


def _matches(peer: Mapping[str, Any], pod: Pod) -> bool:
    # A peer of other namespaces or of addresses is not one of the chart's own pods, but for a
    # namespaceSelector that takes all of them.
    if "ipBlock" in peer or peer.get("namespaceSelector"):
        return False
    return selects(peer.get("podSelector", {}), pod.labels)
