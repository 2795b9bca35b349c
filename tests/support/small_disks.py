"""Disks of a registry that refuse what is written at first."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest
from support.registry_service import MIB, RegistryService


class Disk:
    """A disk that is too small, and later is not."""

    def __init__(self, service: RegistryService) -> None:
        self.service = service

    def shrink(self) -> None:
        """Called before the upload."""

    def grow(self) -> None:
        """Called when it was refused."""

    def remove(self) -> None:
        """Called when the service has ended."""


class LimitedFiles(Disk):
    """The kernel refuses the process files of more than 2 MiB (EFBIG)."""

    def shrink(self) -> None:
        resource.prlimit(self.service.pid, resource.RLIMIT_FSIZE, (2 * MIB, resource.RLIM_INFINITY))

    def grow(self) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(self.service.pid, resource.RLIMIT_FSIZE, unlimited)


class SmallMount(Disk):
    """A tmpfs that holds the service's folder (ENOSPC)."""

    def __init__(self, service: RegistryService, mebibytes: int) -> None:
        super().__init__(service)
        service.data_dir.mkdir()
        if self._run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs"):
            pytest.skip("mounting needs root; the limit on files is tested instead")

    def grow(self) -> None:
        assert self._run("mount", "-o", "remount,size=64m") == 0

    def remove(self) -> None:
        assert self._run("umount") == 0

    def _run(self, *command: str) -> int:
        return _of_folder(self.service.data_dir, *command)


class ReadOnlyUploads:
    """A tmpfs of the registry's uploads that the kernel makes read-only (EROFS), as after a fault.

    Not of all that it has: a disk with a database that is open cannot be remounted.
    """

    def __init__(self, service: RegistryService) -> None:
        self._folder = service.data_dir / "uploads"
        self._folder.mkdir(parents=True)
        if _of_folder(self._folder, "mount", "-t", "tmpfs", "tmpfs"):
            pytest.skip("mounting needs root")

    def forbid(self) -> None:
        assert _of_folder(self._folder, "mount", "-o", "remount,ro") == 0

    def allow(self) -> None:
        assert _of_folder(self._folder, "mount", "-o", "remount,rw") == 0

    def remove(self) -> None:
        assert _of_folder(self._folder, "umount") == 0


def _of_folder(folder: Path, *command: str) -> int:
    return subprocess.run([*command, str(folder)], capture_output=True, timeout=10).returncode
