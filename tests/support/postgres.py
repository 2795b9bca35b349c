"""A throwaway PostgreSQL for tests: the real server, in a temporary folder, on a Unix socket.

The fixture is imported into one conftest: each module that imports it has a server of its own.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from support.folders import service_folder
from support.programs import missing

_DEBIAN = Path("/usr/lib/postgresql")
_START_SECONDS = 60
_PR_SET_PDEATHSIG = 1
_OPTIONS = {
    "listen_addresses": "",
    # The cluster dies with the test run; only the services' own crashes are tested.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
}


class Postgres:
    """A running server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.templates: dict[str, str] = {}
        """URLs of databases that nobody connects to, by what they are templates for."""

    def create_database(self, template: str = "") -> str:
        """A new database, empty or a copy of the one with this URL; its SQLAlchemy URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        copied = sa.make_url(template).database if template else "template1"
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"create database {name} template {copied}".encode())
        return f"postgresql+psycopg://podium@/{name}?host={self._folder}"

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            psycopg.connect(self._conninfo("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _conninfo(self, database: str) -> str:
        return f"host={self._folder} user=podium dbname={database}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for the test run; skips, and says what to install, where there is none."""
    binaries = programs()
    folder = service_folder("podium-pg-")
    try:
        identity = _unprivileged(folder)
        data = folder / "data"
        created = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "podium", "-A", "trust", "-N", "-E", "UTF8"],
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            cwd=folder,
            check=False,
            **identity,
        )
        if created.returncode:
            pytest.fail(f"initdb failed: {created.stderr}")
        log = folder / "log"
        options = [f"-c{name}={value}" for name, value in _OPTIONS.items()]
        with log.open("wb") as output:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", data, "-k", folder, *options],
                stdout=output,
                stderr=output,
                cwd=folder,
                preexec_fn=_die_with_parent,
                **identity,
            )
        try:
            yield _wait(server, Postgres(folder), log)
        finally:
            # SIGINT is its "fast" shutdown: open connections are closed.
            server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def programs() -> Path:
    """The folder of initdb and postgres: Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    if found and shutil.which("postgres"):
        return Path(found).resolve().parent
    versions = sorted(
        (folder for folder in _DEBIAN.glob("*/bin") if (folder / "initdb").exists()),
        key=lambda folder: int(folder.parent.name) if folder.parent.name.isdecimal() else 0,
    )
    if not versions:
        pytest.skip(missing("initdb", "postgresql, or put its bin folder on PATH"))
    return versions[-1]


def _unprivileged(folder: Path) -> Mapping[str, Any]:
    """Arguments of subprocess that run as a user other than root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        # The tests connect as root, and the services that they start too.
        folder.chmod(0o755)
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.fail("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


def _die_with_parent() -> None:
    # A test run that is killed leaves no server behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _wait(server: subprocess.Popen[bytes], cluster: Postgres, log: Path) -> Postgres:
    end = time.monotonic() + _START_SECONDS
    while not cluster.answers():
        if server.poll() is not None or time.monotonic() > end:
            pytest.fail(f"PostgreSQL did not start:\n{log.read_text()[-4000:]}")
        time.sleep(0.05)
    return cluster
