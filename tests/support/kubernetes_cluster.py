"""kubectl and helm as a platform engineer types them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

RELEASE = "podium"
CHART = Path(__file__).parents[2] / "charts" / "podium"


def run(command: Sequence[str], *, timeout: float = 120, text_in: str | None = None) -> str:
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        command, input=text_in, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Cluster:
    """One namespace of the cluster of the current kubeconfig."""

    namespace: str

    def kubectl(self, *arguments: str, timeout: float = 120, text_in: str | None = None) -> str:
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        return run(command, timeout=timeout, text_in=text_in)

    def helm(self, *arguments: str, timeout: float = 1500) -> str:
        return run(["helm", "--namespace", self.namespace, *arguments], timeout=timeout)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", text_in=yaml.safe_dump_all(objects))

    def names(self, kinds: str) -> list[str]:
        """kind/name of every object of some kinds in the namespace, or of the cluster."""
        return sorted(self.kubectl("get", kinds, "--output", "name").split())

    def stored(self, item: dict[str, Any]) -> dict[str, Any]:
        """The object of the kind and name of `item`, as the API server has it."""
        kind, name = item["kind"], item["metadata"]["name"]
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def secret(self, name: str, key: str) -> str:
        import base64

        found = json.loads(self.kubectl("get", "secret", name, "--output", "json"))
        return base64.b64decode(found["data"][key]).decode()

    def pod_of(self, component: str) -> str:
        """pod/NAME of a component that has one."""
        (name,) = self.pods_of(component)
        return name

    def pods_of(self, component: str) -> list[str]:
        """pod/NAME of each of a component's."""
        selector = f"app.kubernetes.io/component={component}"
        return self.kubectl("get", "pods", "-l", selector, "-o", "name").split()

    def trainer_of(self, job_id: str, *, within: float = 300) -> str:
        """pod/NAME of a job's trainer, once it runs."""
        end = time.monotonic() + within
        selector = ("-l", f"podium.dev/job={job_id}", "--field-selector", "status.phase=Running")
        while not (found := self.kubectl("get", "pods", *selector, "-o", "name").split()):
            assert time.monotonic() < end, f"{job_id} has no trainer:\n{self.state()}"
            time.sleep(0.5)
        return found[0]

    def gone(self, kinds: str, selector: str, *, within: float = 180) -> None:
        """Returns when none is left."""
        end = time.monotonic() + within
        while left := self.kubectl("get", kinds, "-l", selector, "-o", "name").split():
            assert time.monotonic() < end, f"still there: {left}\n{self.state()}"
            time.sleep(0.5)

    @contextmanager
    def forward(self, target: str, port: int) -> Iterator[str]:
        """127.0.0.1:PORT of a Service or of pod/NAME, through the API server."""
        process = subprocess.Popen(
            [
                "kubectl",
                "--namespace",
                self.namespace,
                "port-forward",
                target,
                f":{port}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            assert found, line
            # It prints a line a connection, and stops when nobody reads them.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            yield f"127.0.0.1:{found[1]}"
        finally:
            process.terminate()
            process.wait()

    def state(self) -> str:
        """What somebody who looks for a fault reads first."""
        parts = [
            self._try("get", "pods,pvc,deployments,statefulsets,jobs", "--output", "wide"),
            self._try("describe", "nodes")[-2500:],
            self._try("get", "events", "--sort-by=.lastTimestamp")[-6000:],
        ]
        for pod in self.names("pods"):
            parts.append(f"== {pod}\n" + self._try("describe", pod)[-1500:])
            parts.append(self._try("logs", pod, "--all-containers", "--tail=40"))
        return "\n".join(parts)

    def _try(self, *arguments: str) -> str:
        done = subprocess.run(
            ["kubectl", "--namespace", self.namespace, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr


@dataclass(frozen=True)
class Installation:
    """A release that is up."""

    cluster: Cluster
    chart: Path
    values: tuple[str, ...]
    """Helm's --values options."""
    certificate: Mapping[str, str]
    """The variables by which a client of it has a certificate."""
    tls_secret: str
    """The Secret with the services' certificate."""

    @property
    def token(self) -> str:
        return self.cluster.secret(f"{RELEASE}-auth", "token")


def chart_for_this_cluster(folder: Path) -> Path:
    """The chart, with a kubeVersion that lets in the cluster of CI, which is older than 1.29."""
    target = folder / "podium"
    shutil.copytree(CHART, target)
    path = target / "Chart.yaml"
    path.write_text(
        re.sub(r"^kubeVersion:.*$", 'kubeVersion: ">=1.20.0-0"', path.read_text(), flags=re.M)
    )
    return target
