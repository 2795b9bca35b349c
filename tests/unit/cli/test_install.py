"""`podium install`: what is said about a cluster, and the command that fits it.

What it asks kubectl, and how it ends, is in tests/integration/cli.
"""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from podium.cli.findings import Finding
from podium.cli.install.cluster import JOB_SETS, NAMESPACE, RIGHTS, Cluster, Node
from podium.cli.install.values import Wish, helm_command
from podium.cli.install.verdict import MINIMUM, findings
from support.small_cluster import MONITORED

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "podium"
WISH = Wish("podium", "podium", "", str(CHART), "nvidia.com/gpu")
PLURALS = {"NetworkPolicy": "networkpolicies"}

sys.path.insert(0, str(ROOT / "tools"))


def gpu_node(gpus: int, *taints: str, **labels: str) -> Node:
    return Node(f"node-{gpus}", gpus, {k.replace("__", "/"): v for k, v in labels.items()}, taints)


PLAIN = Cluster(
    version="v1.31.2-gke.100",
    resources=frozenset(),
    nodes=(gpu_node(0),),
    storage_classes=("fast", "slow"),
    default_storage="slow",
    runtime_classes=(),
    namespace_exists=True,
    release_exists=False,
    secrets=frozenset(),
    denied=frozenset(),
)
EIGHT = Node("big", 8, {"nvidia.com/gpu.count": "8"}, ("nvidia.com/gpu",))


def finding(cluster: Cluster, name: str, wish: Wish = WISH) -> Finding:
    (found,) = [each for each in findings(cluster, wish) if each.name == name]
    return found


def settings(command: list[str], option: str) -> list[str]:
    return [value for name, value in itertools.pairwise(command) if name == option]


def test_a_plain_cluster_takes_the_chart_as_it_is() -> None:
    assert [each.name for each in findings(PLAIN, WISH) if each.status == "fail"] == []
    command = helm_command(PLAIN, WISH)
    assert command[:6] == ["helm", "install", "podium", str(CHART), "--namespace", "podium"]
    assert command[6:] == ["--wait", "--timeout", "30m"]


def test_the_rights_are_those_that_the_chart_needs() -> None:
    from chart_golden import case, case_names

    needed = set()
    for item in [item for name in case_names() for item in case(name)]:
        group = item["apiVersion"].rpartition("/")[0]
        plural = PLURALS.get(item["kind"], f"{item['kind'].lower()}s")
        needed.add(f"create {'.'.join(filter(None, (plural, group)))}")
        for rule in item.get("rules", ()) if item["kind"] == "Role" else ():
            needed |= {
                f"{verb} {'.'.join(filter(None, (resource, group)))}"
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    # Made on request alone, where their kinds are known.
    optional = {
        "create horizontalpodautoscalers.autoscaling",
        "create leaderworkersets.leaderworkerset.x-k8s.io",
        "create podmonitors.monitoring.coreos.com",
        "create prometheusrules.monitoring.coreos.com",
        "create scaledobjects.keda.sh",
    }
    # gitops.enabled, which is off by default.
    optional |= {right for right in needed if right.endswith(".podium.dev")}
    optional.add("create customresourcedefinitions.apiextensions.k8s.io")
    helm = {"get secrets", "list secrets", "update secrets"}
    assert set(RIGHTS) | set(JOB_SETS) == (needed - optional) | helm
    assert {right for right in needed if "jobset" in right} == set(JOB_SETS)


def test_the_version_is_the_chart_s() -> None:
    wanted = yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    assert wanted == ">=" + ".".join(map(str, MINIMUM)) + ".0-0"


@pytest.mark.parametrize(
    ("version", "status"),
    [("v1.28.15", "fail"), ("v1.29.0", "ok"), ("v1.30+", "ok"), ("v2.0.1", "ok")],
)
def test_old_clusters_are_refused(version: str, status: str) -> None:
    assert finding(replace(PLAIN, version=version), "kubernetes").status == status


def test_what_is_not_allowed_is_named() -> None:
    cluster = replace(PLAIN, denied=frozenset({"create jobs.batch"}))
    found = finding(cluster, "rights")
    assert (found.status, "create jobs.batch" in found.detail) == ("fail", True)


def test_a_namespace_that_is_not_there() -> None:
    cluster = replace(PLAIN, namespace_exists=False)
    assert finding(cluster, "namespace").status == "ok"
    assert "--create-namespace" in helm_command(cluster, WISH)
    cluster = replace(cluster, denied=frozenset({NAMESPACE}))
    assert finding(cluster, "namespace").status == "fail"


def test_a_release_that_is_there_is_upgraded() -> None:
    cluster = replace(PLAIN, release_exists=True)
    assert finding(cluster, "release").status == "warn"
    assert helm_command(cluster, WISH)[1] == "upgrade"


def test_without_a_default_class_one_is_named() -> None:
    cluster = replace(PLAIN, default_storage="")
    assert "fast, slow" in finding(cluster, "storage").detail
    assert settings(helm_command(cluster, WISH), "--set") == [
        "database.internal.persistence.storageClass=fast",
        "registry.persistence.storageClass=fast",
    ]
    assert finding(replace(PLAIN, storage_classes=(), default_storage=""), "storage").status == (
        "fail"
    )


@pytest.mark.parametrize(
    ("nodes", "case", "status"),
    [
        ((gpu_node(0), gpu_node(0)), "", "info"),
        ((gpu_node(1),), "", "warn"),
        ((gpu_node(1), gpu_node(1)), "one-gpu", "ok"),
        ((gpu_node(4, "nvidia.com/gpu"),), "one-gpu", "ok"),
        ((gpu_node(4, "dedicated"),), "one-gpu", "warn"),
        ((EIGHT,), "eight-gpus", "ok"),
    ],
)
def test_the_values_are_those_of_the_gpus(nodes: tuple[Node, ...], case: str, status: str) -> None:
    cluster = replace(PLAIN, nodes=nodes)
    assert finding(cluster, "nvidia.com/gpu").status == status
    files = [f"{CHART}/ci/{case}-values.yaml"] if case else []
    assert settings(helm_command(cluster, WISH), "--values") == files


def test_gpus_of_another_name() -> None:
    wish = replace(WISH, gpu="amd.com/gpu")
    cluster = replace(PLAIN, nodes=(gpu_node(2),))
    assert finding(cluster, "amd.com/gpu", wish).detail.startswith("2 on 1 node")
    assert "gpu.resourceName=amd.com/gpu" in settings(helm_command(cluster, wish), "--set")


def test_what_the_file_for_eight_gpus_expects_is_taken_back_where_it_is_not() -> None:
    bare = replace(PLAIN, nodes=(gpu_node(8),))
    command = helm_command(bare, WISH)
    assert settings(command, "--set") == [
        "podDefaults.runtimeClassName=",
        "modelCache.existingSecret=",
    ]
    assert settings(command, "--set-json") == ["podDefaults.nodeSelector={}"]
    whole = replace(
        PLAIN,
        nodes=(EIGHT,),
        runtime_classes=("nvidia",),
        secrets=frozenset({"hugging-face"}),
    )
    assert settings(helm_command(whole, WISH), "--set") == []
    assert settings(helm_command(whole, WISH), "--set-json") == []


def test_monitoring_is_switched_on_where_its_kinds_are() -> None:
    cluster = replace(PLAIN, resources=MONITORED)
    assert settings(helm_command(cluster, WISH), "--set") == [
        "monitoring.podMonitor.enabled=true",
        "monitoring.rules.enabled=true",
    ]
    assert finding(cluster, "PodMonitor").status == "ok"
    denied = frozenset({"create prometheusrules.monitoring.coreos.com"})
    cluster = replace(cluster, denied=denied)
    assert finding(cluster, "PrometheusRule").status == "warn"
    assert settings(helm_command(cluster, WISH), "--set") == ["monitoring.podMonitor.enabled=true"]


def test_kueue_decides_whether_jobs_may_name_a_queue() -> None:
    assert "refused" in finding(PLAIN, "Kueue").detail
    there = replace(PLAIN, resources=frozenset({"localqueues.kueue.x-k8s.io"}))
    assert finding(there, "Kueue").status == "ok"


def test_job_sets_make_trainers_where_they_are_and_may_be_made() -> None:
    assert finding(PLAIN, "JobSet").status == "info"
    there = replace(PLAIN, resources=frozenset({"jobsets.jobset.x-k8s.io"}))
    assert finding(there, "JobSet").status == "ok"
    assert settings(helm_command(there, WISH), "--set") == []
    # Kubernetes lets nobody give a right that he has not, whether or not there is the kind.
    denied = replace(PLAIN, denied=frozenset({"delete jobsets.jobset.x-k8s.io"}))
    assert finding(denied, "JobSet").status == "info"
    assert finding(denied, "rights").status == "ok"
    assert settings(helm_command(denied, WISH), "--set") == ["trainer.jobSet=never"]


def test_what_may_not_be_looked_at_is_unknown_and_no_failure() -> None:
    cluster = replace(
        PLAIN,
        nodes=None,
        storage_classes=None,
        default_storage="",
        runtime_classes=None,
        namespace_exists=None,
    )
    found = findings(cluster, WISH)
    assert [each.name for each in found if each.status == "fail"] == []
    for name in ("storage", "nodes", "nvidia.com/gpu", "namespace"):
        assert finding(cluster, name).status == "info", name


OPENSHIFT = frozenset({"securitycontextconstraints.security.openshift.io"})
CLUSTERS = (
    PLAIN,
    replace(PLAIN, default_storage="", resources=MONITORED),
    replace(PLAIN, nodes=(gpu_node(2),)),
    replace(PLAIN, nodes=(gpu_node(8),), default_storage=""),
    replace(PLAIN, nodes=(EIGHT,)),
    replace(PLAIN, denied=frozenset(JOB_SETS)),
    replace(PLAIN, resources=OPENSHIFT),
)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_the_chart_takes_the_command_s_values(cluster: Cluster) -> None:
    from chart_golden import render
    from helm_python import parse_set_json, parse_set_string_values

    command = helm_command(cluster, WISH)
    values: dict[str, Any] = {}
    for file in settings(command, "--values"):
        values = yaml.safe_load(Path(file).read_text())
    for setting in settings(command, "--set"):
        path, _, value = setting.partition("=")
        switch = value in ("true", "false")
        _merge(values, _nested(path, value) if switch else parse_set_string_values(setting))
    for setting in settings(command, "--set-json"):
        path = setting.partition("=")[0].split(".")
        values.get(path[0], {}).pop(path[1], None)
        _merge(values, parse_set_json(setting))
    objects = render(values)
    claims = [item for item in objects if item["kind"] == "PersistentVolumeClaim"]
    assert claims
    if not cluster.default_storage:
        assert {item["spec"]["storageClassName"] for item in claims} == {"fast"}
    monitors = {item["kind"] for item in objects} & {"PodMonitor", "PrometheusRule"}
    assert len(monitors) == (2 if cluster.resources == MONITORED else 0)


def test_openshift_gives_pods_their_users_and_has_a_dns_of_its_own() -> None:
    cluster = replace(PLAIN, resources=OPENSHIFT)
    assert finding(cluster, "OpenShift").status == "ok"
    command = helm_command(cluster, WISH)
    assert "fixedUserIds=false" in settings(command, "--set")
    from helm_python import parse_set_json

    (dns,) = settings(command, "--set-json")
    # As the page has it.
    page = (ROOT / "docs" / "how-to" / "strict-clusters.md").read_text()
    (block,) = re.findall(r"^    fixedUserIds: .*\n(?:     .*\n|    networkPolicy:\n)+", page, re.M)
    assert parse_set_json(dns)["networkPolicy"] == yaml.safe_load(block)["networkPolicy"]


def _nested(path: str, text: str) -> dict[str, Any]:
    value: Any = text == "true"
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
