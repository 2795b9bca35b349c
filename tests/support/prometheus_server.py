"""A real Prometheus that scrapes what a test names."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from support.processes import free_port
from support.programs import program


class Prometheus:
    """A running server."""

    def __init__(self, address: str) -> None:
        self._client = httpx.Client(base_url=f"http://{address}", timeout=30, trust_env=False)

    def ready(self) -> bool:
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def series(self, expression: str, start: float, end: float) -> list[dict[str, Any]]:
        """The series of an expression that had a value between two times."""
        query = {"query": expression, "start": start, "end": end, "step": 2}
        answer = self._client.get("/api/v1/query_range", params=query)
        assert answer.status_code == 200, f"{expression}: {answer.text}"
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule: its name, its health and, of an alert, its state and alerts."""
        groups = self._client.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextmanager
def scraping(
    folder: Path,
    targets: Sequence[tuple[str, Mapping[str, str]]],
    rule_files: Sequence[str] = (),
    interval: str = "2s",
) -> Iterator[Prometheus]:
    """Scrapes addresses, each with labels of its own; `rule_files` lie in the folder."""
    address = f"127.0.0.1:{free_port()}"
    configuration = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": interval,
        },
        "rule_files": list(rule_files),
        "scrape_configs": [
            {
                "job_name": "podium",
                "static_configs": [
                    {"targets": [target], "labels": dict(labels)} for target, labels in targets
                ],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus", "prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = Prometheus(address)
        deadline = time.monotonic() + 60
        while not prometheus.ready():
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline, "Prometheus did not start"
            time.sleep(0.2)
        yield prometheus
    finally:
        process.terminate()
        process.wait()
