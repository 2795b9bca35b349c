"""A double of the API server, for the real kubectl: discovery, lists and access reviews."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from podium.kit.http_server import end_http_server
from support.kubernetes_protobuf import access_review

KINDS = {
    "v1": {
        "namespaces": "Namespace",
        "nodes": "Node",
        "secrets": "Secret",
        "services": "Service",
        "pods": "Pod",
        "events": "Event",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "storage.k8s.io/v1": {"storageclasses": "StorageClass"},
    "node.k8s.io/v1": {"runtimeclasses": "RuntimeClass"},
    "authorization.k8s.io/v1": {"selfsubjectaccessreviews": "SelfSubjectAccessReview"},
    "monitoring.coreos.com/v1": {"podmonitors": "PodMonitor"},
}
CLUSTER_WIDE = {
    "namespaces",
    "nodes",
    "storageclasses",
    "runtimeclasses",
    "selfsubjectaccessreviews",
}


class FakeApiServer:
    """What it holds, and where it is."""

    def __init__(self) -> None:
        self.version = "v1.31.2"
        self.objects: list[dict[str, Any]] = []
        self.denied: set[str] = set()
        """As `create jobs.batch`."""
        self.forbidden: set[str] = set()
        """Resources that nobody may list."""
        self.address = ""

    def kubeconfig(self, folder: Path) -> Path:
        """Of one context, `double`."""
        file = folder / "kubeconfig"
        file.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: double\n"
            f"clusters: [{{name: double, cluster: {{server: 'http://{self.address}'}}}}]\n"
            "contexts: [{name: double, context: {cluster: double, user: ''}}]\n"
        )
        return file

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and answer."""
        if path == "/version":
            return 200, {"major": "1", "minor": "31", "gitVersion": self.version}
        if path == "/api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
        version, _, rest = path.removeprefix("/apis/").removeprefix("/api/").partition("/")
        if path.startswith("/apis/"):
            second, _, rest = rest.partition("/")
            version = f"{version}/{second}"
        if version not in KINDS:
            return 404, _status(404, "NotFound", "the server could not find the resource")
        if not rest:
            return 200, _discovery(version)
        parts = rest.split("/")
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        resource, name = parts[0], parts[1] if len(parts) > 1 else ""
        if resource in self.forbidden:
            return 403, _status(403, "Forbidden", f"{resource} is forbidden: you may not")
        found = [o for o in self.objects if o["kind"] == KINDS[version].get(resource)]
        if not name:
            kind = f"{KINDS[version][resource]}List"
            return 200, {"kind": kind, "apiVersion": version, "metadata": {}, "items": found}
        named = [o for o in found if o["metadata"]["name"] == name]
        missing = _status(404, "NotFound", f'{resource} "{name}" not found')
        return (200, named[0]) if named else (404, missing)

    def review(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a SelfSubjectAccessReview."""
        asked = request["spec"]["resourceAttributes"]
        names = (asked["resource"], asked.get("group", ""))
        right = f"{asked['verb']} {'.'.join(filter(None, names))}"
        everything = asked["verb"] == asked["resource"] == "*"
        allowed = not self.denied if everything else right not in self.denied
        return {**request, "status": {"allowed": allowed}}


@contextmanager
def api_server() -> Iterator[FakeApiServer]:
    """Serves the double on a free port."""
    double = FakeApiServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(*double.get(self.path.partition("?")[0]))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            binary = self.headers["Content-Type"] == "application/vnd.kubernetes.protobuf"
            review = access_review(body) if binary else json.loads(body)
            self._answer(201, double.review(review))

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, code: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield double
    finally:
        end_http_server(server)
        thread.join()


def _groups() -> list[dict[str, Any]]:
    return [
        {
            "name": version.partition("/")[0],
            "versions": [{"groupVersion": version, "version": "v1"}],
            "preferredVersion": {"groupVersion": version, "version": "v1"},
        }
        for version in KINDS
        if "/" in version
    ]


def _discovery(version: str) -> dict[str, Any]:
    resources = [
        {
            "name": name,
            "singularName": kind.lower(),
            "namespaced": name not in CLUSTER_WIDE,
            "kind": kind,
            "verbs": ["create", "get", "list"],
        }
        for name, kind in KINDS[version].items()
    ]
    return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }
