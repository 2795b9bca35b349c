"""`up.json`: how a CLI finds the stack that runs in a data directory.

A lock file beside it is held for as long as the launcher lives, so a file
that a killed launcher left behind is known to be stale without asking the
process table.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Literal

from podium.core.errors import AlreadyExistsError

DEFAULT_DATA_DIR = ".podium"


@dataclass(frozen=True)
class ServiceEntry:
    """Where one service is. Addresses are `host:port`."""

    address: str
    health_address: str
    metrics_address: str
    pid: int
    log: str


@dataclass(frozen=True)
class UpFile:
    """What runs in a data directory."""

    pid: int
    version: str
    model: str
    services: dict[str, ServiceEntry] = field(default_factory=dict)
    openai_base_url: str = ""
    token_file: str = ""
    """The bearer token to present; empty when none is asked for."""

    def write(self, data_dir: Path) -> None:
        """Replaces the file in one move, so that no reader sees half of it."""
        target = path(data_dir)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        draft.replace(target)


class Claim:
    """Holds a data directory against a second launcher, until `release`."""

    def __init__(self, data_dir: Path) -> None:
        """Claims it.

        Raises:
            AlreadyExistsError: another launcher runs there.
        """
        data_dir.mkdir(parents=True, exist_ok=True)
        self._data_dir = data_dir
        self._lock = _try_lock(data_dir, "ab", fcntl.LOCK_EX)
        if self._lock is None:
            running = _parse(data_dir)
            who = f" (process {running.pid})" if running else ""
            raise AlreadyExistsError(
                f"Podium already runs in {data_dir}{who}; stop it with "
                f"'podium down --data-dir {data_dir}' or choose another --data-dir",
                reason="ALREADY_UP",
            )
        path(data_dir).unlink(missing_ok=True)

    def release(self) -> None:
        """Removes `up.json` and gives the directory back. Idempotent."""
        if self._lock is not None:
            path(self._data_dir).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None


def path(data_dir: Path) -> Path:
    """Where the file of a data directory is."""
    return data_dir / "up.json"


def read(data_dir: Path) -> UpFile | None:
    """What runs in a data directory; None when nothing does.

    Raises:
        OSError: it may not be read; it need not be written, and may be another user's.
    """
    if not path(data_dir).exists():
        return None
    try:
        # To read: a directory may be another user's.
        lock = _try_lock(data_dir, "rb", fcntl.LOCK_SH)
    except FileNotFoundError:
        return None
    if lock is not None:
        lock.close()
        return None
    return _parse(data_dir)


def find(start: Path | None = None) -> Path | None:
    """The nearest `.podium` with a running stack, from `start` upwards."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        candidate = folder / DEFAULT_DATA_DIR
        # What one may not look into is nobody's of theirs.
        with suppress(OSError):
            if read(candidate) is not None:
                return candidate
    return None


def _try_lock(data_dir: Path, mode: Literal["ab", "rb"], kind: int) -> IO[bytes] | None:
    lock = (data_dir / "up.lock").open(mode)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def _parse(data_dir: Path) -> UpFile | None:
    try:
        raw = json.loads(path(data_dir).read_text(encoding="utf-8"))
        services = {name: ServiceEntry(**entry) for name, entry in raw.pop("services").items()}
        return UpFile(services=services, **raw)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
