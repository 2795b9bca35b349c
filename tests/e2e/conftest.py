"""One installation of the chart in a real cluster, for all tests of this folder."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from podium.sdk.connection import contexts
from support.certificates import Authority
from support.cluster_user import of_release, typed
from support.custom_resources import MONITORING, defined
from support.documented import blocks
from support.kubernetes_cluster import (
    CHART,
    RELEASE,
    Cluster,
    Installation,
    chart_for_this_cluster,
    run,
)

VOLUMES = ("postgresql", "registry", "models")
TLS_SECRET = "e2e-tls"


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
                cluster.apply(_host_volume(namespace, name, folder / name))
        custom = ["kubectl", "delete", "crd", "--ignore-not-found", "trainingjobs.podium.dev"]
        stack.callback(run, custom)
        stack.enter_context(defined(cluster, *MONITORING))
        stack.callback(run, ["kubectl", "delete", "namespace", namespace], timeout=300)
        # Nobody is to be answered to the last.
        now = ("delete", "pods", "--all", "--grace-period=0", "--force")
        stack.callback(cluster.kubectl, *now)
        yield cluster


@pytest.fixture(scope="session")
def wipe(cluster: Cluster) -> Callable[[str], None]:
    """Removes a claim with all that its volume holds; a new claim gets an empty one.

    What is of base models stays, as it can be fetched again: their claim goes with the release.
    """

    def wipe_one(name: str) -> None:
        cluster.kubectl("delete", "--ignore-not-found", "pvc", f"{RELEASE}-{name}")
        if os.environ.get("PODIUM_E2E_VOLUMES") == "host":
            volume = f"{cluster.namespace}-{name}"
            path = cluster.kubectl("get", "pv", volume, "-o", "jsonpath={.spec.hostPath.path}")
            cluster.kubectl("delete", "pv", volume)
            if name != "models":
                shutil.rmtree(path)
            cluster.apply(_host_volume(cluster.namespace, name, Path(path)))

    return wipe_one


@pytest.fixture(scope="session")
def authority() -> Authority:
    """Who signs the certificates of services and clients."""
    return Authority("e2e")


@pytest.fixture(scope="session")
def service_names(cluster: Cluster) -> list[str]:
    """The names that the documents give to the services' certificate."""
    (described,) = blocks("operate.md", "TLS")
    names = yaml.safe_load(described)["spec"]["dnsNames"]
    return [name.replace(".podium.svc.", f".{cluster.namespace}.svc.") for name in names]


@pytest.fixture(scope="session")
def certificate(
    cluster: Cluster,
    authority: Authority,
    service_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """A client's, by its variables; the services' one is in a Secret."""
    folder = tmp_path_factory.mktemp("tls")
    service = authority.issue(folder / "service", *service_names)
    keys = {"tls.crt": "certificate", "tls.key": "key", "ca.crt": "authorities"}
    files = [f"--from-file={key}={service[file]}" for key, file in keys.items()]
    cluster.kubectl("create", "secret", "generic", TLS_SECRET, *files)
    client = authority.issue(folder / "client", "a-client")
    return {f"PODIUM_TLS_{name.upper()}_FILE": str(path) for name, path in client.items()}


@pytest.fixture(scope="session")
def installation(
    cluster: Cluster, certificate: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Installation:
    """The chart, installed with `helm install --wait`, with mutual TLS."""
    chart = chart_for_this_cluster(tmp_path_factory.mktemp("chart"))
    tls = tmp_path_factory.mktemp("values") / "tls.yaml"
    tls.write_text(yaml.safe_dump({"tls": {"existingSecret": TLS_SECRET}}))
    files = [CHART / "ci" / "e2e-values.yaml", tls]
    if more := os.environ.get("PODIUM_E2E_VALUES"):
        files.append(Path(more))
    values = tuple(option for file in files for option in ("--values", str(file)))
    try:
        # Less than a test may take: what kept it from being ready is to be told.
        cluster.helm("install", RELEASE, str(chart), *values, "--wait", "--timeout", "12m")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.state()}") from error
    return Installation(cluster, chart, values, certificate, TLS_SECRET)


@pytest.fixture(scope="session")
def gpus(installation: Installation) -> bool:
    """Whether there are any: those of the cluster, or some that the test's own says it has.

    These stay. The engine that goes and the one that comes have one each, and three trainers.
    """
    nodes = json.loads(installation.cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    if any(int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)) for node in nodes):
        return True
    if tool := os.environ.get("PODIUM_CLUSTER_TOOL"):
        run([tool, "gpus", "5"])
    return bool(tool)


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of somebody who has a kubeconfig and nothing of Podium's."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("PODIUM_")}
    return {**theirs, contexts.FOLDER: str(tmp_path_factory.mktemp("config"))}


@pytest.fixture(scope="session")
def logged_in(installation: Installation, outside: dict[str, str]) -> dict[str, str]:
    """After `podium login`, to an installation with mutual TLS."""
    done = typed(outside, "login", "e2e", *of_release(installation))
    assert done.returncode == 0, f"{done.stderr}\n{installation.cluster.state()}"
    return outside


def _host_volume(namespace: str, name: str, folder: Path) -> dict[str, object]:
    # A volume of the host's keeps the host's owner, and the pods' users are others.
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    for parent in folder.parents[:3]:
        parent.chmod(0o755)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}"},
        "spec": {
            "claimRef": {"namespace": namespace, "name": f"{RELEASE}-{name}"},
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "storageClassName": "podium-e2e",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
