"""The command line of bubblewrap: what a sandboxed program can see."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

from podium.core.errors import FailedPreconditionError
from podium.environments.sandbox.limits import Limits

_NOBODY = "65534"
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_STAGE = "/tmp"
"""Where the first stage puts the runtime for the second."""


@lru_cache(maxsize=1)
def _runtime() -> dict[str, Path]:
    """This Python without its packages: places under /python, and what lies there."""
    found = {
        f"bin/{_VERSION}": Path(sys.executable).resolve(),
        f"lib/{_VERSION}": Path(sysconfig.get_path("stdlib")).resolve(),
    }
    shared = str(sysconfig.get_config_var("INSTSONAME") or "")
    path = Path(str(sysconfig.get_config_var("LIBDIR") or "")) / shared
    if ".so" in shared and path.is_file():
        found[f"lib/{shared}"] = path.resolve()
    return found


def command(limits: Limits, *, info: int, program: int, seccomp: int) -> list[str]:
    """Starts the program of descriptor `program` under the filter of descriptor `seccomp`.

    Bubblewrap tells descriptor `info` the id of the sandbox's first process.
    Root has two stages: in the first, root's own Python becomes readable to
    nobody, as whom the second is what an ordinary user would start.

    Raises:
        FailedPreconditionError: a program that it takes is missing.
    """
    bubblewrap = _find("bwrap", "bubblewrap")
    inform = ["--info-fd", str(info)]
    if os.geteuid() != 0:
        return [bubblewrap, *inform, *_inside(limits, _runtime(), program, seccomp)]
    staged = {place: Path(_STAGE, str(n)) for n, place in enumerate(_runtime())}
    outside = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    outside += ["--unshare-pid", "--proc", "/proc", "--size", "65536", "--tmpfs", _STAGE]
    for place, source in _runtime().items():
        outside += ["--ro-bind", str(source), str(staged[place])]
    outside += ["--die-with-parent", "--new-session", "--"]
    become = [_find("setpriv", "util-linux"), "--reuid", _NOBODY, "--regid", _NOBODY]
    become += ["--clear-groups", "--", bubblewrap]
    return [bubblewrap, *inform, *outside, *become, *_inside(limits, staged, program, seccomp)]


def _inside(limits: Limits, runtime: dict[str, Path], program: int, seccomp: int) -> list[str]:
    options = ["--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL"]
    options += ["--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "sandbox"]
    options += ["--die-with-parent", "--new-session", "--seccomp", str(seccomp), "--clearenv"]
    for name, value in {
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/python/lib",
        # The order of sets must not decide a reward.
        "PYTHONHASHSEED": "0",
    }.items():
        options += ["--setenv", name, value]
    for library in _LIBRARIES:
        if os.path.islink(library):
            options += ["--symlink", os.readlink(library), library]
        elif os.path.isdir(library):
            options += ["--ro-bind", library, library]
    for place, source in runtime.items():
        options += ["--ro-bind", str(source), f"/python/{place}"]
    packages = f"/python/lib/{_VERSION}/site-packages"
    if (_runtime()[f"lib/{_VERSION}"] / "site-packages").is_dir():
        options += ["--size", "4096", "--tmpfs", packages, "--remount-ro", packages]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        options += ["--dev-bind", device, device]
    if limits.disk_bytes:
        options += ["--size", str(limits.disk_bytes), "--tmpfs", "/tmp"]
    else:
        options += ["--dir", "/tmp"]
    # Bubblewrap's own root is a tmpfs without a size.
    options += ["--remount-ro", "/", "--chdir", "/tmp", "--", f"/python/bin/{_VERSION}"]
    # -s -S -P: nothing but the standard library can be imported.
    return [*options, "-s", "-S", "-P", "-B", "-c", _boot(), _resources(limits), str(program)]


@lru_cache(maxsize=1)
def _boot() -> str:
    return Path(__file__).with_name("boot.py").read_text(encoding="utf-8")


def _resources(limits: Limits) -> str:
    return json.dumps(
        {
            "RLIMIT_AS": limits.process_bytes,
            "RLIMIT_CPU": limits.cpu_seconds,
            # The sandbox's first process, bubblewrap's, counts too.
            "RLIMIT_NPROC": limits.processes + 1,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_FSIZE": limits.disk_bytes,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
        }
    )


def _find(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise FailedPreconditionError(
            f"the sandbox needs the program {name} (Debian package {package}), "
            "which is not installed",
            reason="SANDBOX_UNAVAILABLE",
        )
    return found
