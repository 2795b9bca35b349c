"""What a platform asks of every pod, of those too that the controller and `helm test` make."""

from __future__ import annotations

from typing import Any

import pytest
from chart_golden import render
from helm_python import HelmError
from support.chart_pods import of_kind, pods

Object = dict[str, Any]

# All that the chart can make pods of.
EVERYTHING: Object = {
    "gitops": {"enabled": True},
    "tracking": {"enabled": True},
    "pools": [{"name": "one"}, {"name": "several", "nodes": 2}],
    "trainerPools": [{"name": "shared", "baseModel": "smollm2-135m-instruct"}],
}
KINDS = {
    *("controller", "registry", "rollout", "judge", "trainer", "environment", "postgresql"),
    *("gitops", "tracking", "console", "test", "trainers-shared"),
    *("inference-one", "inference-several", "nodes-several"),
}
CALLED = ("controller", "registry", "rollout", "judge", "inference-default")


def containers(values: Object) -> list[tuple[str, Object]]:
    """Every container, with its pod's component."""
    found = pods(render({**EVERYTHING, **values}))
    assert {pod.component for pod in found} == KINDS
    return [(pod.component, each) for pod in found for each in pod.containers]


def variables(container: Object) -> dict[str, str]:
    given = [each["name"] for each in container.get("env", [])]
    assert len(given) == len(set(given)), "server-side apply refuses a name that stands there twice"
    return {each["name"]: each.get("value", "") for each in container.get("env", [])}


def test_a_variable_of_all_is_in_every_container_and_a_services_own_wins() -> None:
    values = {
        "extraEnv": [
            {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
            {"name": "NO_PROXY", "value": ".svc.cluster.local"},
            {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://mine:4317"},
        ],
        "tracing": {"otlpEndpoint": "http://theirs:4317"},
        "judge": {
            "extraEnv": [
                {"name": "HTTPS_PROXY", "value": "http://judges:3128"},
                {"name": "PODIUM_JUDGE_LOG_LEVEL", "value": "DEBUG"},
            ]
        },
    }
    for component, container in containers(values):
        given = variables(container)
        proxy = "http://judges:3128" if component == "judge" else "http://proxy:3128"
        assert given["HTTPS_PROXY"] == proxy, component
        assert given["NO_PROXY"] == ".svc.cluster.local"
        assert given["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://mine:4317"
        if component == "judge":
            assert given["PODIUM_JUDGE_LOG_LEVEL"] == "DEBUG"


@pytest.mark.parametrize("service", ["controller", "registry"])
def test_a_databases_url_may_be_of_a_secret_with_other_keys(service: str) -> None:
    # As CloudNativePG makes them.
    name = f"PODIUM_{service.upper()}_DATABASE_URL"
    url = {"name": name, "valueFrom": {"secretKeyRef": {"name": "pg-app", "key": "uri"}}}
    values = {"database": {"existingSecret": "pg-app"}, service: {"extraEnv": [url]}}
    (pod,) = (pod for pod in pods(render(values)) if pod.component == service)
    given = [each for each in pod.containers[0]["env"] if each["name"] == name]
    assert given == [url]


def test_a_volume_of_all_is_in_every_container() -> None:
    volume = {"name": "authorities", "configMap": {"name": "authorities"}}
    mount = {"name": "authorities", "mountPath": "/etc/authorities", "readOnly": True}
    values = {"podDefaults": {"volumes": [volume], "volumeMounts": [mount]}}
    for pod in pods(render({**EVERYTHING, **values})):
        assert volume in pod.spec["volumes"]
        for container in pod.containers:
            assert mount in container["volumeMounts"], pod.component


def test_a_pods_own_volumes_are_besides_those_of_all_and_win_by_name() -> None:
    def volume(name: str, source: str) -> Object:
        return {"name": name, "configMap": {"name": source}}

    shared, scratch = volume("authorities", "all"), volume("scratch", "mine")
    mounts = [
        {"name": each["name"], "mountPath": f"/etc/{each['name']}"} for each in (shared, scratch)
    ]
    own = volume("authorities", "judges")
    values = {
        "podDefaults": {"volumes": [shared], "volumeMounts": mounts[:1]},
        "trainer": {"pod": {"volumes": [scratch], "volumeMounts": mounts[1:]}},
        "judge": {"pod": {"volumes": [own]}},
    }
    found = {pod.component: pod for pod in pods(render(values))}
    trainer, judge = found["trainer"], found["judge"]
    for each in (shared, scratch):
        assert each in trainer.spec["volumes"]
    for mount in mounts:
        assert mount in trainer.containers[0]["volumeMounts"]
    assert own in judge.spec["volumes"]
    assert shared not in judge.spec["volumes"]
    assert mounts[0] in judge.containers[0]["volumeMounts"]


def test_a_variable_that_is_replaced_stands_where_others_are_made_of_it() -> None:
    values = {
        "tracing": {"otlpEndpoint": "http://collector:4317"},
        "extraEnv": [{"name": "BASE", "value": "all"}, {"name": "PATHS", "value": "$(BASE)/x"}],
        "judge": {
            "extraEnv": [
                {"name": "BASE", "value": "judges"},
                {"name": "K8S_NODE", "value": "mine"},
                {"name": "NAME", "value": "judge"},
                {"name": "PODIUM_JUDGE_LOG_LEVEL", "value": "$(NAME)"},
            ]
        },
    }
    (pod,) = (pod for pod in pods(render(values)) if pod.component == "judge")
    names = [each["name"] for each in pod.containers[0]["env"]]
    assert len(names) == len(set(names))
    for first, then in (
        ("BASE", "PATHS"),
        ("K8S_NODE", "OTEL_RESOURCE_ATTRIBUTES"),
        ("NAME", "PODIUM_JUDGE_LOG_LEVEL"),
    ):
        assert names.index(first) < names.index(then)
    assert variables(pod.containers[0])["BASE"] == "judges"


def test_labels_annotations_and_places_are_of_every_pod() -> None:
    values = {
        "podDefaults": {
            "labels": {"sidecar.istio.io/inject": "false"},
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "priorityClassName": "batch",
        },
        "image": {"pullSecrets": ["credentials"]},
        "test": {"pod": {"annotations": {"helm.sh/hook": "pre-install", "more": "x"}}},
    }
    objects = render({**EVERYTHING, **values})
    for pod in pods(objects):
        assert pod.labels["sidecar.istio.io/inject"] == "false", pod.component
        assert pod.spec["tolerations"] == values["podDefaults"]["tolerations"]
        assert pod.spec["priorityClassName"] == "batch"
        assert pod.spec["imagePullSecrets"] == [{"name": "credentials"}]
    (test,) = of_kind(objects, "Pod")
    annotations = test["metadata"]["annotations"]
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert (annotations["helm.sh/hook"], annotations["more"]) == ("test", "x")


def test_every_container_can_have_what_a_quota_asks_for() -> None:
    asked = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    resources = {"requests": asked, "limits": asked}
    values: Object = {
        name: {**EVERYTHING.get(name, {}), "resources": resources}
        for name in (
            *("controller", "registry", "rollout", "judge", "trainer", "environments"),
            *("gitops", "tracking", "console", "test", "modelCache", "poolDefaults"),
        )
    }
    values["database"] = {"internal": {"resources": resources}}
    for component, container in containers(values):
        assert container["resources"] == resources, component


def test_where_the_cluster_gives_users_no_pod_names_one() -> None:
    for pod in pods(render({**EVERYTHING, "fixedUserIds": False})):
        security = pod.spec["securityContext"]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(security), pod.component
        assert security["runAsNonRoot"] is True


def test_each_image_can_be_pinned_by_its_digest() -> None:
    names = [
        *("controller", "registry", "rollout", "judge", "trainer", "tracking"),
        *("inference", "inference-cuda"),
    ]
    digests = {name: f"sha256:{number:064x}" for number, name in enumerate(names)}
    pools = [{"name": "one"}, {"name": "several", "nodes": 2, "tagSuffix": "-cuda"}]
    values = {"image": {"tag": "0.1.0", "digests": digests}, "pools": pools}
    for component, container in containers(values):
        if component in ("environment", "postgresql"):
            continue
        name, _, digest = container["image"].removeprefix("podium/").partition("@")
        assert digest == digests[name.replace(":0.1.0", "")]
    with pytest.raises(HelmError, match="digests"):
        render({"image": {"digests": {"controller": "sha256:1"}}})


def test_pods_with_addresses_of_ipv6_alone_listen_at_those() -> None:
    found = [variables(each) for _, each in containers({"listenAddress": "::"})]
    hosts = {v for given in found for name, v in given.items() if name.endswith("_HOST")}
    assert hosts == {"::"}
    rules = [
        rule
        for policy in of_kind(render(), "NetworkPolicy")
        for rule in policy["spec"].get("egress") or []
        if {"protocol": "TCP", "port": 6443} in rule.get("ports", [])
    ]
    assert rules
    for rule in rules:
        assert {peer["ipBlock"]["cidr"] for peer in rule["to"]} == {"0.0.0.0/0", "::/0"}


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({}, {("controller", "grpc"): "kubernetes.io/h2c"}),
        (
            {"tls": {"existingSecret": "t"}},
            {
                **{
                    (name, "grpc"): "tls" for name in ("controller", "registry", "rollout", "judge")
                },
                ("inference-default", "grpc"): "tls",
                ("console", "http"): "https",
            },
        ),
    ],
)
def test_a_mesh_or_gateway_is_told_what_is_encrypted(
    values: Object, ports: dict[tuple[str, str], str]
) -> None:
    told = {
        (service["spec"]["selector"]["app.kubernetes.io/component"], port["name"]): port[
            "appProtocol"
        ]
        for service in of_kind(render(values), "Service")
        for port in service["spec"]["ports"]
        if "appProtocol" in port
    }
    assert told == ports
