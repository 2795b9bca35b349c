"""A manifest that the objects of every job are made from, as the installation gives it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Self

import yaml

from podium.core.errors import InvalidArgumentError, Violation

Manifest = dict[str, Any]

JOB_LABEL = "podium.dev/job"
GRPC_PORT_NAME = "grpc"

INSTANCE_LABEL = "app.kubernetes.io/instance"
SELECTED_LABELS = ("app.kubernetes.io/name", INSTANCE_LABEL, "app.kubernetes.io/component")
# A pod's name is what JobSet makes of it: <name>-job-0-<index>-<5 characters>, at most 63 together;
# there are at most 1024 pods.
_NAME_LENGTH = 46
_DIGEST_LENGTH = 8


def object_name(prefix: str, job_id: str) -> str:
    """The name of a job's objects: the same after any restart, and a DNS label."""
    name = f"{prefix}-{job_id}"
    if len(name) <= _NAME_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


def reference(owner: Manifest) -> Manifest:
    """As an ownerReference."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }


def load_manifest(setting: str, path: Path) -> Any:
    """The content of a YAML file that a setting names.

    Raises:
        InvalidArgumentError: it is not there, or is no YAML.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        found = Violation(setting, f"got {str(path)!r}: {error}")
        raise InvalidArgumentError(violations=[found]) from error


class ObjectTemplate:
    """Subclassed for each kind of object, with the attributes below."""

    setting: str
    """The setting that names its file, as violations tell it."""
    api_version: str
    kind: str
    container_name: str
    """Of the container that Podium runs."""

    def __init__(self, manifest: Manifest) -> None:
        """
        Raises:
            InvalidArgumentError: nothing can be made from it.
        """
        found = self._violations(manifest)
        if found:
            raise InvalidArgumentError(violations=found)
        self._manifest = manifest
        labels = manifest["metadata"]["labels"]
        self._selected = {key: labels[key] for key in SELECTED_LABELS if key in labels}
        self.port: int = _port(self._container(manifest))

    @classmethod
    def load(cls, path: Path, *arguments: Any) -> Self:
        """Reads the file; `arguments` are what the constructor takes after the manifest.

        Raises:
            InvalidArgumentError: it is not there, is no YAML, or nothing can be
                made from it.
        """
        return cls(load_manifest(cls.setting, path), *arguments)

    @property
    def selector(self) -> str:
        """Label selector of every object that is made from it."""
        return ",".join([*(f"{key}={value}" for key, value in self._selected.items()), JOB_LABEL])

    def name(self, job_id: str) -> str:
        """The name of a job's objects."""
        return object_name(self._manifest["metadata"]["name"], job_id)

    def is_ours(self, found: Manifest, job_id: str) -> bool:
        """Whether an object of that name is this installation's, for this job."""
        labels = found["metadata"].get("labels") or {}
        return all(labels.get(key) == value for key, value in self._labels(job_id).items())

    def _labels(self, job_id: str) -> dict[str, str]:
        """By which a job's objects are selected."""
        return {**self._selected, JOB_LABEL: job_id}

    def _headless_service(self, job_id: str, owner: Manifest, **spec: Any) -> Manifest:
        """A Service that has an address a pod, with what else its `spec` says."""
        labels = self._labels(job_id)
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": self.name(job_id),
                "labels": labels,
                "ownerReferences": [reference(owner)],
            },
            "spec": {"clusterIP": "None", "selector": labels, **spec},
        }

    def _container(self, manifest: Manifest) -> Manifest:
        containers = manifest["spec"]["template"]["spec"]["containers"]
        found: Manifest = next(c for c in containers if c.get("name") == self.container_name)
        return found

    def _violations(self, manifest: Any) -> list[Violation]:
        path = self.setting
        if not isinstance(manifest, dict) or (
            (manifest.get("apiVersion"), manifest.get("kind")) != (self.api_version, self.kind)
        ):
            return [Violation(path, f"allowed is one {self.api_version} {self.kind} as YAML")]
        found = []
        metadata = manifest.get("metadata") or {}
        if not metadata.get("name"):
            found.append(Violation(f"{path}.metadata.name", "is missing"))
        if INSTANCE_LABEL not in (metadata.get("labels") or {}):
            found.append(
                Violation(
                    f"{path}.metadata.labels",
                    f"has no {INSTANCE_LABEL}, which tells this installation's objects from"
                    " others'",
                )
            )
        pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
        path = f"{path}.spec.template.spec.containers"
        name = self.container_name
        named = [each for each in pod.get("containers") or [] if each.get("name") == name]
        if not named:
            return [*found, Violation(path, f"has none named {name!r}")]
        path = f"{path}[{name}]"
        if not _port(named[0]):
            found.append(Violation(f"{path}.ports", f"has none named {GRPC_PORT_NAME!r}"))
        return found + self._container_violations(path, named[0])

    def _container_violations(self, path: str, container: Manifest) -> list[Violation]:
        """What else is wrong with the container, which is at `path`."""
        return []


def _port(container: Manifest) -> int:
    ports = container.get("ports") or []
    return next((each["containerPort"] for each in ports if each.get("name") == GRPC_PORT_NAME), 0)
