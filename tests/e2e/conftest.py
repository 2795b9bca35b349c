"""One installation of the chart in a real cluster, for all tests of this folder."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.kubernetes_cluster import (
    CHART,
    RELEASE,
    Cluster,
    Installation,
    chart_for_this_cluster,
    run,
)

# For the dashboards, whose expressions are asked of a Prometheus.
sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

VOLUMES = ("postgresql", "registry", "models")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is here, and skips it where nobody asked for a cluster."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.e2e)
        if not os.environ.get("PODIUM_E2E"):
            item.add_marker(pytest.mark.skip(reason="needs a Kubernetes cluster: run `make e2e`"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A namespace, and volumes where the cluster makes none by itself."""
    namespace = f"podium-e2e-{uuid.uuid4().hex[:6]}"
    cluster = Cluster(namespace)
    run(["kubectl", "create", "namespace", namespace])
    with ExitStack() as stack:
        if os.environ.get("PODIUM_E2E_VOLUMES") == "host":
            folder = tmp_path_factory.mktemp("volumes")
            for name in VOLUMES:
                stack.callback(run, ["kubectl", "delete", "pv", f"{namespace}-{name}"])
                cluster.apply(_host_volume(f"{namespace}-{name}", folder / name))
        definition = ["kubectl", "delete", "crd", "--ignore-not-found", "trainingjobs.podium.dev"]
        stack.callback(run, definition)
        stack.callback(run, ["kubectl", "delete", "namespace", namespace], timeout=300)
        yield cluster


@pytest.fixture(scope="session")
def installation(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The chart, installed with `helm install --wait`."""
    chart = chart_for_this_cluster(tmp_path_factory.mktemp("chart"))
    values = ["--values", str(CHART / "ci" / "e2e-values.yaml")]
    if more := os.environ.get("PODIUM_E2E_VALUES"):
        values += ["--values", more]
    try:
        cluster.helm("install", RELEASE, str(chart), *values, "--wait", "--timeout", "20m")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.state()}") from error
    return Installation(cluster, chart, tuple(values))


def _host_volume(name: str, folder: Path) -> dict[str, object]:
    # A volume of the host's keeps the host's owner, and the pods' users are others.
    folder.mkdir()
    folder.chmod(0o777)
    for parent in folder.parents[:3]:
        parent.chmod(0o755)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "storageClassName": "podium-e2e",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
