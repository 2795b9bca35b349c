"""A release of the chart, as its objects in the cluster tell."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.core.errors import FailedPreconditionError, NotFoundError
from podium.sdk.connection.contexts import Kubernetes
from podium.sdk.connection.kubectl import Kubectl

_COMPONENT = "app.kubernetes.io/component"
_POOL = "inference-"
# The names that the chart gives them in the controller's Deployment.
_POOLS = "PODIUM_CONTROLLER_POOLS"
_AUTH_VOLUME = "auth"


@dataclass(frozen=True)
class _Found:
    services: Mapping[str, str]
    """Names of Services, by what clients call them."""
    secret: str
    """Where the token is; empty where none is asked for."""


class Release:
    """Finds a release's Services and its token, once and when they are first needed."""

    def __init__(self, where: Kubernetes) -> None:
        self.where = where
        self.kubectl = Kubectl(where.context, where.namespace)
        self._lock = asyncio.Lock()
        self._found: _Found | None = None
        self._token: str | None = None

    async def service(self, name: str) -> str:
        """The Service of controller, registry, inference, rollout or judge.

        Raises:
            NotFoundError: there is no such release, pool or service.
            PodiumError: as `Kubectl.run`.
        """
        async with self._lock:
            services = (await self._look()).services
        if name not in services:
            raise NotFoundError(f"{describe(self.where)} has no {name}", reason="NO_SERVICE")
        return services[name]

    async def token(self) -> str:
        """The token of the release's Secret; empty where it asks for none.

        Raises:
            NotFoundError: there is no such release.
            PodiumError: as `Kubectl.run`.
        """
        async with self._lock:
            if self._token is None:
                secret = (await self._look()).secret
                self._token = await self._read(secret) if secret else ""
            return self._token

    async def _look(self) -> _Found:
        if self._found is None:
            labels = (
                f"app.kubernetes.io/instance={self.where.release},app.kubernetes.io/part-of=podium"
            )
            listed = await self.kubectl.run(
                "get", "services,deployments", f"--selector={labels}", "--output=json"
            )
            self._found = _find(json.loads(listed)["items"], self.where)
        return self._found

    async def _read(self, secret: str) -> str:
        data = json.loads(await self.kubectl.run("get", "secret", secret, "--output=json"))["data"]
        try:
            return base64.b64decode(data["token"], validate=True).decode().strip()
        except (KeyError, binascii.Error, UnicodeDecodeError):
            raise FailedPreconditionError(
                f"the Secret {secret} of {describe(self.where)} has no token under the key 'token'",
                reason="NO_TOKEN",
            ) from None


def describe(where: Kubernetes) -> str:
    """A release in words."""
    context = f" of the Kubernetes context {where.context}" if where.context else ""
    return f"release {where.release} in namespace {where.namespace}{context}"


def _find(objects: list[dict[str, Any]], where: Kubernetes) -> _Found:
    components = {
        (item["kind"], item["metadata"]["labels"][_COMPONENT]): item
        for item in objects
        if _COMPONENT in item["metadata"]["labels"]
    }
    services = {
        name: item["metadata"]["name"]
        for (kind, name), item in components.items()
        if kind == "Service"
    }
    controller = components.get(("Deployment", "controller"))
    if controller is None or "controller" not in services:
        raise NotFoundError(
            f"there is no {describe(where)}; 'helm list --all-namespaces' shows what there is",
            reason="NO_RELEASE",
        )
    pod = controller["spec"]["template"]["spec"]
    pools = {
        name.removeprefix(_POOL): service
        for name, service in services.items()
        if name.startswith(_POOL)
    }
    named = {name: service for name, service in services.items() if not name.startswith(_POOL)}
    return _Found({**named, "inference": _pool(pools, pod, where)}, _secret(pod))


def _pool(pools: Mapping[str, str], pod: Mapping[str, Any], where: Kubernetes) -> str:
    """The Service of the pool that is asked for, or of the controller's first."""
    if where.pool:
        if where.pool not in pools:
            raise NotFoundError(
                f"{describe(where)} has no pool {where.pool}; it has {', '.join(sorted(pools))}",
                reason="NO_POOL",
            )
        return pools[where.pool]
    variables: dict[str, str] = {
        v["name"]: v.get("value", "") for c in pod["containers"] for v in c.get("env", ())
    }
    first = variables.get(_POOLS, "").partition(",")[0]
    return first.partition("=")[2].partition(".")[0]


def _secret(pod: Mapping[str, Any]) -> str:
    for volume in pod.get("volumes", ()):
        if volume["name"] == _AUTH_VOLUME:
            return str(volume["secret"]["secretName"])
    return ""
