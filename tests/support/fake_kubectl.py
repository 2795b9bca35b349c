"""A double of kubectl, the test's end: `FakeKubectl` puts the program into a folder for PATH.

The program is `kubectl_program.py`.
"""

from __future__ import annotations

import base64
import functools
import json
import marshal
import os
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

from support.kubectl_program import STATE

PROGRAM = Path(__file__).with_name("kubectl_program.py")
GOLDEN = Path(__file__).parents[1] / "golden" / "chart"


class FakeKubectl:
    """The test's end: what the double answers, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        program = folder / "kubectl"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{PROGRAM}" "$@"\n')
        program.chmod(0o755)
        self._state = folder / "state"
        self._log = folder / "log"
        self.objects: list[dict[str, Any]] = []
        self.forwards: dict[str, str] = {}
        """`service/NAME:PORT` of a namespace's to the address that plays it."""
        self.refusals: dict[str, str] = {}
        """What it says, and fails with, by the beginning of its arguments."""
        self.raw: dict[str, Any] = {}
        self.logs: dict[str, list[str]] = {}
        """By pod, with `NAME/previous` for the container before: lines that begin with a time."""
        self.resources: list[str] = []
        self.denied: list[str] = []
        """What `auth can-i` says no to."""
        self.namespace = "podium"
        self.context = "a-cluster"
        self.write()

    def write(self) -> None:
        """Makes what was set count."""
        shown = {k: v for k, v in vars(self).items() if not k.startswith("_") and k != "folder"}
        draft = self._state.with_suffix(".draft")
        draft.write_bytes(marshal.dumps({**shown, "log": str(self._log)}))
        draft.replace(self._state)

    def play_release(self, address: str, token: str, case: str = "default") -> None:
        """Has the objects of one of the chart's golden files; one server plays every service."""
        self.objects = json.loads(_release(case))
        for item in self.objects:
            if item["kind"] == "Secret" and "token" in item["data"]:
                item["data"]["token"] = base64.b64encode(token.encode()).decode()
            if item["kind"] == "Service":
                for port in item["spec"]["ports"]:
                    target = f"service/{item['metadata']['name']}:{port['port']}"
                    self.forwards[target] = address
        self.write()

    @property
    def environment(self) -> dict[str, str]:
        """For the process under test."""
        return {
            "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
            STATE: str(self._state),
        }

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each run, in order."""
        return [arguments for _, arguments in self._runs()]

    def pids(self, command: str) -> list[int]:
        """The processes that ran a command, in order."""
        return [pid for pid, arguments in self._runs() if command in arguments]

    def _runs(self) -> list[tuple[int, list[str]]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [literal_eval(line) for line in lines]


@functools.cache
def _release(case: str) -> str:
    """What counts of a golden file, as JSON, which is read in a tenth of the time."""
    import yaml

    rendered = yaml.load_all((GOLDEN / f"{case}.yaml").read_text(), yaml.CSafeLoader)
    return json.dumps([o for o in rendered if o["kind"] in ("Service", "Deployment", "Secret")])
