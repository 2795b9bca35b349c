"""The end of a release, and its return from the backup that the documents describe.

Runs after test_e2e_training.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster_jobs import LASTING, goes_on, in_the_middle, outside, podium, until
from support.documented import blocks
from support.kubernetes_cluster import RELEASE, Installation, run

pytestmark = pytest.mark.timeout(2400)

BACKUP, RESTORE = blocks("operate.md", "Backup")


@pytest.fixture(scope="module")
def desk(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the documents' commands expect it: chart, values, and a kubeconfig."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "charts").mkdir()
    (folder / "charts" / "podium").symlink_to(installation.chart)
    values: dict[str, Any] = {}
    for file in installation.values[1::2]:
        values = merged(values, yaml.safe_load(Path(file).read_text()))
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    kubeconfig = folder / "kubeconfig"
    view = ["config", "view", "--raw", "--minify", "--flatten"]
    kubeconfig.touch(0o600)
    kubeconfig.write_text(installation.cluster.kubectl(*view))
    namespace = f"--namespace={installation.cluster.namespace}"
    run(
        [
            "kubectl",
            "--kubeconfig",
            str(kubeconfig),
            "config",
            "set-context",
            "--current",
            namespace,
        ]
    )
    return folder


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """As helm takes two files of values."""
    found = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if both else value
    return found


def type_in(desk: Path, commands: str, installation: Installation) -> None:
    """Runs what a document shows, with the release's name in it."""
    done = subprocess.run(
        [
            "bash",
            "-euxo",
            "pipefail",
            "-c",
            commands.replace("RELEASE", RELEASE).replace("PREFIX", RELEASE),
        ],
        cwd=desk,
        env={**os.environ, "KUBECONFIG": str(desk / "kubeconfig")},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    told = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, f"{told}\n{installation.cluster.state()}"


def versions_of(client: dict[str, str], job_id: str) -> list[int]:
    found = json.loads(podium(client, "checkpoint", "list", job_id, "-o", "json"))
    return sorted(int(each["manifest"].get("version", 0)) for each in found)


def test_the_documented_backup_runs_in_the_middle_of_a_job(
    installation: Installation, desk: Path
) -> None:
    in_the_middle(installation, LASTING)
    type_in(desk, BACKUP, installation)
    for name in ("controller.sql", "registry.sql", "blobs.tar"):
        assert (desk / name).stat().st_size > 10_000, name


def test_uninstall_in_the_middle_of_a_job_leaves_what_the_values_keep(
    installation: Installation,
) -> None:
    cluster = installation.cluster
    cluster.trainer_of(LASTING)
    cluster.helm("uninstall", RELEASE, "--wait", "--timeout", "5m")
    # Helm waits for what it made, not for the pods of that.
    cluster.gone("jobs,pods", "podium.dev/job")
    cluster.gone("pods", f"app.kubernetes.io/instance={RELEASE}")
    kinds = (
        "deployments,statefulsets,pods,services,configmaps,persistentvolumeclaims,roles,rolebindings,"
        "networkpolicies,poddisruptionbudgets,horizontalpodautoscalers,jobs,leases"
    )
    ours = [name for name in cluster.names(kinds) if "kube-root-ca.crt" not in name]
    assert ours == [f"persistentvolumeclaim/{RELEASE}-postgresql"]
    secrets = [name for name in cluster.names("secrets") if RELEASE in name]
    assert secrets == [f"secret/{RELEASE}-database"]


def test_the_documented_restore_brings_all_back_and_the_job_goes_on(
    installation: Installation, desk: Path, wipe: Callable[[str], None]
) -> None:
    cluster = installation.cluster
    for name in ("postgresql", "registry", "models"):
        wipe(name)
    cluster.kubectl("delete", "secret", f"{RELEASE}-database")
    type_in(desk, RESTORE, installation)
    saved = until(installation, LASTING, lambda job: True)
    done = int(saved["completed_steps"])
    assert done >= 1, saved
    with outside(installation) as client:
        assert done in versions_of(client, LASTING)
        if "first" in podium(client, "job", "list", "-o", "name").split():
            # Of test_e2e_training.py, where that ran.
            assert {1, 2, 3} <= set(versions_of(client, "first"))
            podium(client, "checkpoint", "export", "first@3", str(desk / "adapter"))
    goes_on(installation, LASTING)
