"""What the chart's pods may do, for every case of ci/."""

from __future__ import annotations

import base64
import re
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from chart_golden import render
from podium.types.v1 import spec_pb2
from podium_controller.cluster.environment_template import EnvironmentTemplate
from support.chart_pods import (
    COMPONENT,
    GROUP_INDEX,
    edges,
    environment_deployment,
    of_kind,
    pods,
    selects,
)

GRPC = {
    "controller": 50051,
    "registry": 50052,
    "inference-default": 50053,
    "rollout": 50054,
    "judge": 50055,
    "trainer": 50056,
}
HTTP, SQL, ENVIRONMENT, CONSOLE = 50083, 5432, 50060, 50058

# The call graph of docs/architecture.md. To add a line is to open a way.
EDGES = {
    ("controller", "registry", GRPC["registry"]),
    ("controller", "inference-default", GRPC["inference-default"]),
    ("controller", "rollout", GRPC["rollout"]),
    ("controller", "judge", GRPC["judge"]),
    ("controller", "trainer", GRPC["trainer"]),
    ("controller", "postgresql", SQL),
    ("registry", "postgresql", SQL),
    ("inference-default", "registry", GRPC["registry"]),
    ("inference-default", "inference-default", GRPC["inference-default"]),
    ("rollout", "inference-default", GRPC["inference-default"]),
    ("rollout", "environment", ENVIRONMENT),
    ("judge", "inference-default", HTTP),
    ("trainer", "registry", GRPC["registry"]),
    *(("trainer", "trainer", port) for port in (50056, 50066, 50076)),
    *(
        ("console", name, GRPC[name])
        for name in ("controller", "registry", "inference-default", "rollout")
    ),
    ("test", "controller", GRPC["controller"]),
    ("test", "registry", GRPC["registry"]),
}

# (role, API group, resource, verb). To add a line is to give a right.
RIGHTS = {
    ("podium-controller", group, resource, verb)
    for group, resource, verbs in (
        ("batch", "jobs", ("create", "get", "list", "watch", "delete")),
        ("jobset.x-k8s.io", "jobsets", ("create", "get", "delete")),
        ("", "pods", ("list", "watch")),
        ("", "services", ("create", "get")),
        ("", "events", ("list", "watch")),
        ("apps", "deployments", ("create", "get", "list", "watch", "delete")),
    )
    for verb in verbs
}

GITOPS_RIGHTS = {
    ("podium-gitops", "podium.dev", "trainingjobs", "list"),
    ("podium-gitops", "podium.dev", "trainingjobs", "watch"),
    ("podium-gitops", "podium.dev", "trainingjobs", "patch"),
    ("podium-gitops", "podium.dev", "trainingjobs/status", "patch"),
}

# Volumes that Pod Security "restricted" allows.
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def test_every_pod_is_restricted(objects: list[dict[str, Any]]) -> None:
    found = pods(objects)
    assert len(found) >= 7
    for pod in found:
        spec, security = pod.spec, pod.spec["securityContext"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= VOLUMES
        for container in pod.containers:
            own = container["securityContext"]
            assert own == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert not any("hostPort" in port for port in container.get("ports", []))


def test_what_runs_a_models_code_takes_a_runtime_class_of_its_own() -> None:
    values = {
        "podDefaults": {"runtimeClassName": "nvidia"},
        "rollout": {"pod": {"runtimeClassName": "gvisor"}},
        "environments": {"pod": {"runtimeClassName": "kata"}},
    }
    objects = render(values)
    classes = {pod.component: pod.spec.get("runtimeClassName") for pod in pods(objects)}
    assert (classes["rollout"], classes["environment"]) == ("gvisor", "kata")
    assert (classes["trainer"], classes["inference-default"]) == ("nvidia", "nvidia")
    # What a job's environment is made of keeps it.
    template = EnvironmentTemplate(environment_deployment(objects))
    made = template.deployment("a-job", spec_pb2.EnvironmentSpec(name="mine", image="mine:1"))
    assert made["spec"]["template"]["spec"]["runtimeClassName"] == "kata"


def test_who_speaks_to_the_api_server_alone_has_a_token_of_the_api_server(
    objects: list[dict[str, Any]],
) -> None:
    accounts = {a["metadata"]["name"]: a for a in of_kind(objects, "ServiceAccount")}
    for pod in pods(objects):
        has_token = pod.spec["automountServiceAccountToken"]
        assert has_token is (pod.component in ("controller", "gitops")), pod.name
        assert accounts[pod.spec["serviceAccountName"]]["automountServiceAccountToken"] is False


def test_rights_are_those_recorded(objects: list[dict[str, Any]]) -> None:
    assert of_kind(objects, "ClusterRole") == of_kind(objects, "ClusterRoleBinding") == []
    rights = {
        (
            role["metadata"]["name"],
            group,
            "/".join([resource, *rule.get("resourceNames", [])]),
            verb,
        )
        for role in of_kind(objects, "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    with_gitops = "gitops" in {pod.component for pod in pods(objects)}
    assert rights == (RIGHTS | GITOPS_RIGHTS if with_gitops else RIGHTS)
    for binding in of_kind(objects, "RoleBinding"):
        assert [subject["name"] for subject in binding["subjects"]] == [binding["roleRef"]["name"]]


def test_pods_reach_each_other_by_the_call_graph_alone() -> None:
    assert edges(render()) == EDGES


def test_gitops_calls_the_controller_alone() -> None:
    found = edges(render({"gitops": {"enabled": True}}))
    assert found - EDGES == {("gitops", "controller", GRPC["controller"])}


def test_the_controller_is_told_whose_jobs_may_name_which_secret() -> None:
    given = [
        {"name": "mail", "existingSecret": "x", "projects": ["mail"]},
        {"name": "shared", "existingSecret": "y"},
    ]
    objects = render({"tracking": {"enabled": True, "secrets": given}})
    (pod,) = [each for each in pods(objects) if each.component == "controller"]
    env = {each["name"]: each.get("value") for each in pod.spec["containers"][0]["env"]}
    assert env["PODIUM_CONTROLLER_TRACKING"] == "true"
    path = PurePosixPath(env["PODIUM_CONTROLLER_TRACKING_SECRETS_FILE"])
    (mount,) = [m for m in pod.spec["containers"][0]["volumeMounts"] if m["name"] == "trackers"]
    assert mount["mountPath"] == str(path.parent)
    (config,) = [
        each
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["name"] == "podium-trackers"
    ]
    assert yaml.safe_load(config["data"][path.name]) == {
        "mail": {"projects": ["mail"]},
        "shared": {},
    }


def test_tracking_calls_the_controller_alone_and_has_what_its_values_name() -> None:
    values = {
        "tracking": {
            "enabled": True,
            "secrets": [{"name": "team", "existingSecret": "team-wandb"}],
        },
        "networkPolicy": {
            "egress": {"tracking": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]}
        },
    }
    objects = render(values)
    assert edges(objects) - EDGES == {("tracking", "controller", GRPC["controller"])}
    (pod,) = [each for each in pods(objects) if each.component == "tracking"]
    volumes = {each["name"]: each for each in pod.spec["volumes"]}
    mounts = {m["mountPath"]: m["name"] for m in pod.spec["containers"][0]["volumeMounts"]}
    volume = volumes[mounts["/etc/podium/trackers/team"]]
    assert volume["secret"]["secretName"] == "team-wandb"
    (policy,) = [
        each
        for each in of_kind(objects, "NetworkPolicy")
        if each["metadata"]["name"] == "podium-tracking"
    ]
    assert {"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]} in policy["spec"]["egress"]


def test_without_policies_everybody_reaches_everybody() -> None:
    assert len(edges(render({"networkPolicy": {"enabled": False}}))) > 5 * len(EDGES)


def test_each_pool_has_the_ways_of_the_first() -> None:
    found = edges(render({"pools": [{"name": "default"}, {"name": "b"}]}))
    second = {(a.replace("-b", "-default"), b.replace("-b", "-default"), p) for a, b, p in found}
    assert second == EDGES
    assert ("rollout", "inference-b", GRPC["inference-default"]) in found


def test_clients_reach_what_clients_call(objects: list[dict[str, Any]]) -> None:
    open_to_clients = set()
    for policy in of_kind(objects, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress") or []:
            if not any(_expressions(peer) or _group(peer) for peer in rule["from"]):
                open_to_clients |= {port["port"] for port in rule["ports"]}
    metrics = {port + 20 for port in (*GRPC.values(), CONSOLE)}
    if "gitops" in {pod.component for pod in pods(objects)}:
        metrics.add(50077)
    calls = {GRPC[name] for name in ("controller", "registry", "inference-default", "rollout")}
    assert open_to_clients == calls | metrics | {HTTP, CONSOLE}


def _expressions(peer: dict[str, Any]) -> list[dict[str, Any]]:
    return list(peer.get("podSelector", {}).get("matchExpressions", []))


def _group(peer: dict[str, Any]) -> bool:
    return GROUP_INDEX in peer.get("podSelector", {}).get("matchLabels", {})


def test_one_policy_denies_what_no_other_allows(objects: list[dict[str, Any]]) -> None:
    (deny,) = (
        p for p in of_kind(objects, "NetworkPolicy") if p["metadata"]["name"].endswith("-deny")
    )
    assert set(deny["spec"]) == {"podSelector", "policyTypes"}
    for pod in pods(objects):
        assert selects(deny["spec"]["podSelector"], pod.labels)


def test_the_engine_has_no_admin_routes(objects: list[dict[str, Any]]) -> None:
    for pod in pods(objects):
        for container in pod.containers:
            names = {variable["name"] for variable in container.get("env", [])}
            assert "VLLM_SERVER_DEV_MODE" not in names
    for pod in pods(objects):
        if pod.labels[COMPONENT].startswith("inference-"):
            (container,) = pod.spec["containers"]
            variables = {v["name"]: v.get("value") for v in container["env"]}
            assert variables["PODIUM_INFERENCE_AUTH_TOKENS_FILE"] == "/etc/podium/auth/tokens"
            assert variables["PODIUM_INFERENCE_API_KEYS_FILE"] == "/etc/podium/auth/api-key"


def test_agents_have_a_key_that_is_none_of_the_services_tokens() -> None:
    objects = render()
    (made,) = (s for s in of_kind(objects, "Secret") if s["metadata"]["name"].endswith("-auth"))
    data = {key: base64.b64decode(value).decode() for key, value in made["data"].items()}
    assert data["token"] in data["tokens"].split()
    assert len(data["api-key"]) >= 32
    assert data["api-key"] not in data["tokens"].split()
    # Read from files, which follow the Secret: a variable would stay as it was at the start.
    assert "VLLM_API_KEY" not in str(objects)
    assert "PODIUM_JUDGE_KEY" not in {
        variable["name"]
        for pod in pods(objects)
        for container in pod.containers
        for variable in container.get("env", [])
    }


@pytest.mark.parametrize("url", ["", "https://judge.example.com/v1"])
def test_a_judge_shows_the_services_token_to_the_pool_alone(url: str) -> None:
    (judge,) = (
        pod for pod in pods(render({"judge": {"baseUrl": url}})) if pod.component == "judge"
    )
    (container,) = judge.spec["containers"]
    shown = [v["value"] for v in container["env"] if v["name"] == "PODIUM_JUDGE_KEY_FILE"]
    assert shown == ([] if url else ["/etc/podium/auth/token"])


def test_secrets_are_in_secrets_alone() -> None:
    objects = render()
    secrets = of_kind(objects, "Secret")
    assert len(secrets) == 2
    for config in of_kind(objects, "ConfigMap"):
        assert not re.search(r"(password|token|key)\s*[:=]\s*[\w-]{8,}", str(config["data"]))
    for pod in pods(objects):
        for container in pod.containers:
            for variable in container.get("env", []):
                if re.search(r"PASSWORD|_KEY$|PODIUM_TOKEN|DATABASE_URL", variable["name"]):
                    assert set(variable) == {"name", "valueFrom"}, variable["name"]


def test_with_secrets_of_ones_own_the_chart_makes_none() -> None:
    values = {"auth": {"existingSecret": "a"}, "database": {"existingSecret": "b"}}
    objects = render(values)
    assert of_kind(objects, "Secret") == []
    named = {
        variable["valueFrom"]["secretKeyRef"]["name"]
        for pod in pods(objects)
        for container in pod.containers
        for variable in container.get("env", [])
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    mounted = {
        volume["secret"]["secretName"]
        for pod in pods(objects)
        for volume in pod.spec["volumes"]
        if "secret" in volume
    }
    assert named | mounted == {"a", "b"}
    assert "postgresql" not in {pod.component for pod in pods(objects)}


def test_without_auth_nobody_looks_for_tokens() -> None:
    text = str(render({"auth": {"enabled": False}}))
    assert "podium-auth" not in text
    assert "AUTH_TOKENS_FILE" not in text
