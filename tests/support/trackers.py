"""Langfuse and OpenPipe on loopback: they keep what the clients send, as the real ones do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from support.recording_http import Answer, Request, serving


@dataclass
class Observation:
    """One observation of a trace."""

    id: str
    trace: str
    parent: str
    name: str
    attributes: dict[str, Any]
    start: int
    end: int

    @property
    def type(self) -> str:
        return str(self.attributes["langfuse.observation.type"])

    def value(self, name: str) -> Any:
        """`input`, `output` or `metadata.…`."""
        found = self.attributes[f"langfuse.observation.{name}"]
        try:
            return json.loads(found) if isinstance(found, str) else found
        except ValueError:
            return found


@dataclass
class LangfuseServer:
    """Observations by their ids: one that is sent again takes the place of the first."""

    url: str = ""
    refuses: bool = False
    keys: set[str] = field(default_factory=set)
    observations: dict[tuple[str, str], Observation] = field(default_factory=dict)
    received: int = 0
    unknown: list[str] = field(default_factory=list)

    def handle(self, request: Request) -> Answer:
        self.keys.add(request.headers.get("authorization", ""))
        url = urlsplit(request.path)
        if self.refuses:
            return Answer(503)
        if url.path == "/api/public/otel/v1/traces":
            self._take(ExportTraceServiceRequest.FromString(request.body))
            body = ExportTraceServiceResponse().SerializeToString()
            return Answer(200, body, "application/x-protobuf")
        if url.path == "/api/public/v2/observations":
            [trace] = parse_qs(url.query)["traceId"]
            data = [
                {
                    "id": each.id,
                    "traceId": each.trace,
                    "startTime": "2026-01-01T00:00:00Z",
                    "projectId": "project",
                    "type": each.type.upper(),
                }
                for each in self.observations.values()
                if each.trace == trace
            ]
            return Answer(body=json.dumps({"data": data[:1], "meta": {}}).encode())
        self.unknown.append(request.path)
        return Answer(404)

    def _take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes: dict[str, Any] = {}
                    for each in span.attributes:
                        kind = each.value.WhichOneof("value") or "string_value"
                        attributes[each.key] = getattr(each.value, kind)
                    found = Observation(
                        span.span_id.hex(),
                        span.trace_id.hex(),
                        span.parent_span_id.hex(),
                        span.name,
                        attributes,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                    )
                    self.received += 1
                    self.observations[found.trace, found.id] = found

    def named(self, prefix: str) -> list[Observation]:
        """Observations by the beginning of their names, in the order of their times."""
        found = [each for each in self.observations.values() if each.name.startswith(prefix)]
        return sorted(found, key=lambda each: (each.start, each.name))

    def of(self, trace: str) -> list[Observation]:
        """A trace's observations."""
        return [each for each in self.observations.values() if each.trace == trace]


@contextmanager
def langfuse_server(state: LangfuseServer | None = None, port: int = 0) -> Iterator[LangfuseServer]:
    """Serves inside the block."""
    found = state or LangfuseServer()
    with serving(found.handle, port) as found.url:
        yield found


@dataclass
class OpenPipeServer:
    """Reports, with the metadata that they got later."""

    url: str = ""
    refuses: bool = False
    keys: set[str] = field(default_factory=set)
    reports: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def handle(self, request: Request) -> Answer:
        self.keys.add(request.headers.get("authorization", ""))
        if self.refuses:
            return Answer(503, b"<html>gone fishing</html>", "text/html")
        body = json.loads(request.body)
        self.calls.append((request.path, body))
        if request.path == "/api/v1/report":
            self.reports.append(body)
            return Answer(body=b'{"status": "ok"}')
        if request.path == "/api/v1/logs/update-metadata":
            matched = [each for each in self.reports if self._matches(each, body["filters"])]
            for each in matched:
                each["reqPayload"]["metadata"].update(body["metadata"])
            return Answer(body=json.dumps({"matchedLogs": len(matched)}).encode())
        return Answer(404)

    @staticmethod
    def _matches(report: dict[str, Any], filters: list[dict[str, str]]) -> bool:
        metadata = report["reqPayload"].get("metadata", {})
        return all(
            metadata.get(each["field"].removeprefix("metadata.")) == each["equals"]
            for each in filters
        )


@contextmanager
def openpipe_server(state: OpenPipeServer | None = None, port: int = 0) -> Iterator[OpenPipeServer]:
    """Serves inside the block."""
    found = state or OpenPipeServer()
    with serving(found.handle, port) as url:
        found.url = f"{url}/api/v1"
        yield found
