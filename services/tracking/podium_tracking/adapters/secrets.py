"""Secrets by name: folders of files, and for the empty name this process's own variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from podium_tracking.domain.trackers import NEEDED, VARIABLES


class Secrets:
    """Read anew each time: a mounted Secret changes under a running process."""

    def __init__(self, folder: Path | None, environment: Mapping[str, str] | None = None) -> None:
        """`folder`: one folder for each secret, a file for each variable, as Kubernetes mounts."""
        self._folder = folder
        self._environment = os.environ if environment is None else environment

    def find(self, tracker: str, secret: str) -> tuple[dict[str, str], str]:
        """The variables that the secret has for the tracker, and what is missing, for people.

        `secret` is a DNS label, which the contract holds, and no path.
        """
        if not secret:
            found = {
                name: self._environment[name]
                for name in VARIABLES[tracker]
                if self._environment.get(name)
            }
            where = "the environment"
        elif self._folder is None:
            return {}, f"secret {secret!r} is not there: this service has no folder of secrets"
        else:
            found = self._read(self._folder / secret, VARIABLES[tracker])
            where = f"secret {secret!r}"
        missing = [name for name in NEEDED[tracker] if not found.get(name)]
        return found, f"{', '.join(missing)} not in {where}" if missing else ""

    def _read(self, folder: Path, names: tuple[str, ...]) -> dict[str, str]:
        found = {}
        for name in names:
            try:
                text = (folder / name).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError):
                continue
            if text:
                found[name] = text
        return found
