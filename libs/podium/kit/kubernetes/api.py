"""The few calls of the Kubernetes API that the controller makes, in plain JSON.

Plain, because the client's models refuse what another version of the API
answers; and asynchronous, so that a watch costs no thread and ends when it is
cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.rest import RESTResponse

from podium.core.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    PodiumError,
    UnavailableError,
    Violation,
)
from podium.kit.kubernetes import metrics
from podium.kit.kubernetes.object_template import Manifest

_CALL_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
_WATCH_SECONDS = 240
"""The API server ends a watch after this long, and the next one goes on from there."""
_PAGE = 500
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MERGE: Mapping[bool, Manifest] = {
    True: {"Content-Type": "application/merge-patch+json"},
    False: {},
}
_ERRORS: Mapping[int, type[PodiumError]] = {
    400: InvalidArgumentError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: AlreadyExistsError,
    410: OutOfRangeError,
    422: InvalidArgumentError,
}


@dataclass(frozen=True)
class Resource:
    """A kind of object as the API addresses it."""

    api_version: str
    plural: str
    removal: str = "Background"
    """The propagation policy with which it is deleted."""

    def path(self, namespace: str, name: str = "") -> str:
        """Of all objects of a namespace, or of one."""
        root = "api" if "/" not in self.api_version else "apis"
        path = f"/{root}/{self.api_version}/namespaces/{namespace}/{self.plural}"
        return f"{path}/{name}" if name else path


JOBS = Resource("batch/v1", "jobs")
PODS = Resource("v1", "pods")
SERVICES = Resource("v1", "services")
EVENTS = Resource("v1", "events")
DEPLOYMENTS = Resource("apps/v1", "deployments")


@dataclass(frozen=True)
class Selection:
    """Which objects of a kind."""

    resource: Resource
    labels: str = ""
    fields: str = ""

    def query(self) -> list[tuple[str, str]]:
        """As parameters of a list or a watch."""
        wanted = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return [(name, value) for name, value in wanted if value]


class ClusterApi:
    """One namespace of one cluster.

    Every method raises UnavailableError when the API server cannot be reached
    or will not answer now, and else the exception of its answer: NotFoundError,
    AlreadyExistsError, PermissionDeniedError, InvalidArgumentError.
    """

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    async def create(self, resource: Resource, body: Manifest) -> Manifest:
        """Makes an object; returns it as the cluster has it."""
        return await self._json("POST", resource.path(self.namespace), body=body)

    async def get(self, resource: Resource, name: str) -> Manifest:
        """Reads an object."""
        return await self._json("GET", resource.path(self.namespace, name))

    async def patch(
        self, resource: Resource, name: str, body: Manifest, subresource: str = ""
    ) -> Manifest:
        """Merges into an object, or into a part of it such as `status`; returns it as it is now."""
        path = resource.path(self.namespace, name)
        if subresource:
            path = f"{path}/{subresource}"
        return await self._json("PATCH", path, body=body)

    async def delete(self, resource: Resource, name: str, uid: str) -> None:
        """Deletes that very object, and as `resource.removal` says what it owns. Idempotent."""
        body = {"propagationPolicy": resource.removal, "preconditions": {"uid": uid}}
        try:
            await self._json("DELETE", resource.path(self.namespace, name), body=body)
        except (NotFoundError, AlreadyExistsError):
            # Gone, or another of that name is in its place: a conflict.
            return

    async def list_all(self, selection: Selection) -> tuple[list[Manifest], str]:
        """Every object, and the version from which to watch."""
        items: list[Manifest] = []
        more = ""
        while True:
            query = [*selection.query(), ("limit", str(_PAGE))]
            if more:
                query.append(("continue", more))
            page = await self._json("GET", selection.resource.path(self.namespace), query=query)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            more = metadata.get("continue", "")
            if not more:
                return items, metadata.get("resourceVersion", "")

    async def watch(self, selection: Selection, version: str) -> AsyncGenerator[Manifest, None]:
        """Changes after a version, until the API server ends the watch.

        Raises:
            OutOfRangeError: the version is too old; list again.
        """
        query = [
            *selection.query(),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(_WATCH_SECONDS)),
        ]
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=_WATCH_SECONDS + _CALL_SECONDS
        )
        path = selection.resource.path(self.namespace)
        async with self._request("GET", path, query=query, limits=timeout) as response:
            while line := await response.response.content.readline():
                event: Manifest = json.loads(line)
                if event.get("type") == "ERROR":
                    raise _error(event["object"].get("code", 0), event["object"])
                yield event

    async def serves(self, api: str) -> bool:
        """Whether the cluster knows an API group, or a version of one: `group/version`."""
        try:
            await self._json("GET", f"/apis/{api}")
        except NotFoundError:
            return False
        return True

    async def _json(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
    ) -> Manifest:
        timeout = aiohttp.ClientTimeout(total=_CALL_SECONDS)
        async with self._request(method, path, query, body, timeout) as response:
            found: Manifest = json.loads(await response.read())
            return found

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[RESTResponse]:
        response: RESTResponse | None = None
        metrics.CALLS.labels(method, _plural(path)).inc()
        try:
            verb, url, headers, data, _ = await self._client.param_serialize(
                method,
                path,
                query_params=query or [],
                body=body,
                auth_settings=["BearerToken"],
                header_params={"Accept": "application/json", **_MERGE[method == "PATCH"]},
            )
            response = await self._client.call_api(
                verb, url, headers, data, _request_timeout=limits
            )
            if not 200 <= response.status < 300:
                raise _error(response.status, _status(await response.read()))
            yield response
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnavailableError(
                "the cluster's API server cannot be reached",
                reason="CLUSTER_UNAVAILABLE",
                metadata={"peer": "kubernetes"},
            ) from error
        finally:
            if response is not None:
                # What is left of a stream is not worth reading.
                response.response.close()


@asynccontextmanager
async def connected(namespace: str = "", kubeconfig: str = "") -> AsyncIterator[ClusterApi]:
    """The cluster that this process runs in, or that a kubeconfig names.

    Args:
        namespace: empty for the service account's or the context's own.
        kubeconfig: a file; empty for $KUBECONFIG, outside of a cluster.

    Raises:
        InvalidArgumentError: there is no cluster to be found.
    """
    configuration = Configuration()
    own = "default"
    try:
        if not kubeconfig and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
            own = await asyncio.to_thread(_NAMESPACE_FILE.read_text)
        else:
            loader = await config.load_kube_config(
                kubeconfig or os.environ.get("KUBECONFIG"), client_configuration=configuration
            )
            own = loader.current_context["context"].get("namespace", own)
    except (config.ConfigException, OSError) as error:
        found = Violation(
            "trainer_template", f"needs a cluster, by a service account or KUBECONFIG: {error}"
        )
        raise InvalidArgumentError(violations=[found]) from error
    async with ApiClient(configuration) as client:
        yield ClusterApi(client, namespace or own.strip())


def _plural(path: str) -> str:
    """The kind of objects that a path is about; `groups` for what the cluster knows."""
    _, _, rest = path.partition("/namespaces/")
    _, found, kind = rest.partition("/")
    return kind.split("/")[0] if found else "groups"


def _status(body: bytes) -> Manifest:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def _error(code: int, status: Manifest) -> PodiumError:
    message = status.get("message") or f"the cluster's API server answered {code}"
    kind = _ERRORS.get(code, UnavailableError)
    return kind(message, reason=f"CLUSTER_{code}", metadata={"peer": "kubernetes"})
