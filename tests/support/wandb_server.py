"""A W&B server on loopback that records what the real client sends.

It speaks as much of GraphQL, file stream and file store as `wandb.init`, `log`, `log_artifact`
and `finish` need, and keeps runs so that a later client resumes them.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Run:
    """One run as the server knows it."""

    name: str
    project: str
    display_name: str = ""
    notes: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    exits: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """The history, row by row."""
        return [json.loads(line) for line in self.history]


@dataclass
class Artifact:
    """One artifact's version."""

    name: str
    type: str
    description: str
    metadata: dict[str, Any]
    digest: str
    committed: bool = False
    manifest: dict[str, Any] = field(default_factory=dict)


class WandbServer:
    """What arrived, and how the server behaves."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.artifacts: list[Artifact] = []
        self.keys: set[str] = set()
        self.unknown: list[str] = []
        self.refuses = False
        """Whether every call is answered with 503."""
        self.lock = threading.Lock()
        self.url = ""
        self._blobs: dict[str, bytes] = {}

    def run(self, name: str) -> Run:
        """A run by its id."""
        return self.runs[name]

    def committed(self, kind: str) -> dict[str, Artifact]:
        """The committed artifacts of a type, by name."""
        return {each.name: each for each in self.artifacts if each.committed and each.type == kind}

    def table(self, run: str, key: str) -> dict[str, Any]:
        """A table that a run has logged."""
        files = self.runs[run].files
        path = next(row[key]["path"] for row in self.runs[run].rows() if key in row)
        found: dict[str, Any] = json.loads(files[path])
        return found

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The answer's data."""
        match = re.search(r"(?:query|mutation)\s+(\w+)", query)
        name = match[1] if match else ""
        answer = getattr(self, f"_{name}", None)
        if answer is None:
            self.unknown.append(query)
            return {}
        found: dict[str, Any] = answer(variables)
        return found

    def stream(self, run: str, body: dict[str, Any]) -> None:
        """One call of the file stream."""
        target = self.runs[run]
        for name, part in (body.get("files") or {}).items():
            offset, content = part.get("offset", 0), part["content"]
            if name == "wandb-history.jsonl":
                target.history[offset:] = content
            elif name == "wandb-summary.json":
                target.summary = json.loads(content[-1])
        target.exits += bool(body.get("complete"))

    def put(self, path: str, body: bytes) -> None:
        """A file's upload."""
        kind, _, rest = path.partition("/")
        if kind == "run":
            run, _, name = rest.partition("/")
            self.runs[run].files[name] = body
            return
        self._blobs[rest] = body
        index, _, name = rest.partition("/")
        if name == "wandb_manifest.json":
            self.artifacts[int(index)].manifest = json.loads(body)

    def _bucket(self, run: Run) -> dict[str, Any]:
        return {
            "id": f"id-{run.name}",
            "name": run.name,
            "displayName": run.display_name,
            "description": None,
            "sweepName": None,
            "createdAt": "2026-01-01T00:00:00",
            "historyLineCount": len(run.history),
            "logLineCount": 0,
            "eventsLineCount": 0,
            "historyTail": json.dumps(run.history[-1:]),
            "eventsTail": "[]",
            "summaryMetrics": json.dumps(run.summary),
            "config": json.dumps(run.config),
            "tags": run.tags,
            "notes": run.notes,
            "wandbConfig": json.dumps({"t": 1}),
            "project": {
                "id": "project",
                "name": run.project,
                "entity": {"id": "entity", "name": "somebody"},
            },
        }

    def _RunResumeStatus(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(variables["name"])
        return {
            "model": {
                "id": "project",
                "name": variables["project"],
                "entity": {"id": "entity", "name": variables.get("entity") or "somebody"},
                "bucket": self._bucket(run) if run else None,
            }
        }

    def _UpsertBucket(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("name") or variables["id"].removeprefix("id-")
        inserted = name not in self.runs
        run = self.runs.setdefault(name, Run(name, variables.get("project") or ""))
        run.display_name = variables.get("displayName") or run.display_name
        run.notes = variables.get("notes") or run.notes
        run.tags = variables.get("tags") or run.tags
        if variables.get("config"):
            run.config = json.loads(variables["config"])
        return {"upsertBucket": {"bucket": self._bucket(run), "inserted": inserted}}

    def _ServerFeaturesQuery(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def _Viewer(self, variables: dict[str, Any]) -> dict[str, Any]:
        viewer = {"id": "viewer", "entity": "somebody", "username": "somebody", "flags": "{}"}
        return {"viewer": viewer | {"teams": {"edges": []}}}

    def _XXHashDigestsEnabled(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"entity": {"xxhashDigestsEnabled": False}}

    def _FetchArtifactDigestAlgorithm(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifactType": None}}

    def _ArtifactType(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"project": {"artifact": None}}

    def _MarkRunFilesUploaded(self, variables: dict[str, Any]) -> dict[str, Any]:
        return {"markRunFilesUploaded": {"success": True}}

    def _CreateRunFiles(self, variables: dict[str, Any]) -> dict[str, Any]:
        run = variables["run"]
        files = [
            {"name": name, "uploadUrl": f"{self.url}/put/run/{run}/{name}"}
            for name in variables["files"]
        ]
        return {"createRunFiles": {"runID": f"id-{run}", "uploadHeaders": [], "files": files}}

    def _CreateArtifact(self, variables: dict[str, Any]) -> dict[str, Any]:
        given = variables["input"]
        self.artifacts.append(
            Artifact(
                given["artifactCollectionName"],
                given["artifactTypeName"],
                given.get("description") or "",
                json.loads(given.get("metadata") or "{}"),
                given["digest"],
            )
        )
        found = {
            "id": str(len(self.artifacts) - 1),
            "state": "PENDING",
            "artifactSequence": {"id": "sequence", "latestArtifact": None},
        }
        return {"createArtifact": {"artifact": found}}

    def _CreateArtifactManifest(self, variables: dict[str, Any]) -> dict[str, Any]:
        artifact = variables["artifactID"]
        file = {
            "id": f"file-{artifact}",
            "uploadUrl": f"{self.url}/put/artifact/{artifact}/wandb_manifest.json",
            "uploadHeaders": [],
        }
        manifest = {"id": f"manifest-{artifact}", "file": file}
        return {"createArtifactManifest": {"artifactManifest": manifest}}

    def _UpdateArtifactManifest(self, variables: dict[str, Any]) -> dict[str, Any]:
        artifact = variables["artifactManifestID"].removeprefix("manifest-")
        made = self._CreateArtifactManifest({"artifactID": artifact})
        return {"updateArtifactManifest": made["createArtifactManifest"]}

    def _CreateArtifactFiles(self, variables: dict[str, Any]) -> dict[str, Any]:
        edges = [
            {
                "node": {
                    "storagePath": f"wandb_artifacts/{each['artifactID']}/{each['name']}",
                    "uploadUrl": f"{self.url}/put/artifact/{each['artifactID']}/{each['name']}",
                    "uploadHeaders": [],
                    "uploadMultipartUrls": None,
                    "artifact": {"id": each["artifactID"]},
                }
            }
            for each in variables["input"]["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _CommitArtifact(self, variables: dict[str, Any]) -> dict[str, Any]:
        artifact = self.artifacts[int(variables["artifactID"])]
        artifact.committed = True
        found = {"id": variables["artifactID"], "digest": artifact.digest}
        return {"commitArtifact": {"artifact": found}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def _answer(self) -> None:
        state = self.server.state
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        with state.lock:
            status, answer = 200, {}
            if state.refuses:
                status = 503
            elif self.path == "/graphql":
                state.keys.add(self.headers.get("Authorization", ""))
                asked = json.loads(body)
                data = state.graphql(asked["query"], asked.get("variables") or {})
                answer = {"data": data}
                if not data:
                    answer["errors"] = [{"message": "this server does not know that"}]
            elif self.path.startswith("/put/"):
                state.put(unquote(self.path.removeprefix("/put/")), body)
            elif self.path.endswith("/file_stream"):
                state.stream(unquote(self.path.split("/")[-2]), json.loads(body))
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(text)

    do_GET = _answer  # noqa: N815
    do_POST = _answer  # noqa: N815
    do_PUT = _answer  # noqa: N815


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed says nothing worth reading."""

    def __init__(self, state: WandbServer, port: int) -> None:
        self.state = state
        super().__init__(("127.0.0.1", port), _Handler)


@contextmanager
def wandb_server(state: WandbServer | None = None, port: int = 0) -> Iterator[WandbServer]:
    """Serves inside the block; with an earlier one's state and port it is that one again."""
    found = state or WandbServer()
    server = _Server(found, port)
    found.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
