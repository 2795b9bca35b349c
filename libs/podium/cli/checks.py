"""The checks of `podium doctor`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path

from podium.cli.findings import Finding
from podium.core.errors import PodiumError
from podium.local.launcher import health, layout, upfile
from podium.local.packages import misfits
from podium.sdk.client import AsyncClient
from podium.sdk.connection.addresses import Addresses, data_dir_in_use

_GIB = 2**30
_LOW_DISK, _LOW_MEMORY = 5 * _GIB, 4 * _GIB
_LOCAL_NEEDS = ("torch", "transformers", "peft", "vllm", "sqlalchemy", "alembic", "obstore")


async def every_check(addresses: Addresses, data_dir: Path | None, model: str) -> list[Finding]:
    """Runs all checks."""
    folder = data_dir or data_dir_in_use() or upfile.find()
    running = upfile.read(folder) if folder else None
    remote = running is None and addresses.elsewhere
    findings = [_packages(remote)]
    if running is not None:
        findings += await _services(running)
    elif not remote:
        findings.append(_ports())
    findings.append(await _controller(addresses, expected=remote or running is not None))
    if not remote:
        findings += _machine(model, folder or Path.cwd())
    return findings


async def checks_without_stack(why: str, data_dir: Path | None, model: str) -> list[Finding]:
    """The checks of this machine, where nothing runs in the data directory that is named."""
    folder = data_dir or data_dir_in_use() or Path.cwd()
    nothing = Finding("fail", "address", why, "Start it with 'podium up', or name another.")
    return [_packages(remote=False), nothing, *_machine(model, folder)]


def _machine(model: str, folder: Path) -> list[Finding]:
    return [_model(model), _disk(folder), _memory(), _cpu()]


def _packages(remote: bool) -> Finding:
    versions = f"podium {metadata.version('podium')}, grpcio {metadata.version('grpcio')}"
    missing = [name for name in _LOCAL_NEEDS if util.find_spec(name) is None]
    if missing and not remote:
        return Finding(
            "warn",
            "packages",
            f"{versions}; not installed: {', '.join(missing)}",
            "The client works without; 'podium up' needs them: 'make setup' in a clone, or "
            "pip install 'podium[local]'.",
        )
    if wrong := misfits():
        return Finding(
            "fail",
            "packages",
            f"{versions}; of another build than torch: {', '.join(wrong)}",
            f"pip uninstall -y {' '.join(name.partition(' ')[0] for name in wrong)}",
        )
    return Finding("ok", "packages", versions)


async def _services(running: upfile.UpFile) -> list[Finding]:
    entries = running.services.items()
    states = await asyncio.gather(
        *(health.check(entry.health_address, layout.READINESS[name]) for name, entry in entries)
    )
    return [
        Finding("ok", name, f"serves at {entry.address}")
        if state == "SERVING"
        else Finding(
            "fail",
            name,
            f"{state.lower().replace('_', ' ')} at {entry.address}",
            f"Read {entry.log}; 'podium up' starts it again when it dies.",
        )
        for (name, entry), state in zip(entries, states, strict=True)
    ]


def _ports() -> Finding:
    ports = layout.choose_ports(layout.DEFAULT_PORT_BASE)
    taken = [
        f"{port} ({name})"
        for name, service in ports.items()
        for port in vars(service).values()
        if port and not layout.is_free(port)
    ]
    if taken:
        return Finding(
            "warn",
            "ports",
            f"in use: {', '.join(taken)}",
            "If that is not Podium, start it elsewhere with 'podium up --port-base 0'.",
        )
    return Finding("ok", "ports", "all of the default layout are free")


async def _controller(addresses: Addresses, expected: bool) -> Finding:
    where = f"{_where(addresses)} (from {addresses.source})"
    try:
        async with AsyncClient(addresses, timeout=5.0) as client:
            async for _ in client.jobs.list():
                break
    except PodiumError as error:
        return Finding(
            "fail" if expected else "warn",
            "address",
            f"{error.message}; looked at {where}",
            "Check the address and the network."
            if addresses.elsewhere
            else "Nothing runs here yet: start it with 'podium up'.",
        )
    return Finding("ok", "address", f"jobs are taken at {where}")


def _where(addresses: Addresses) -> str:
    from podium.sdk.connection.release import describe

    if addresses.controller or addresses.kubernetes is None:
        return addresses.controller or "no address"
    return describe(addresses.kubernetes)


def _model(name: str) -> Finding:
    from podium.local.models import resolve

    try:
        return Finding("ok", "model", f"{name} in {resolve(name)}")
    except PodiumError:
        return Finding(
            "fail",
            "model",
            f"{name} is not prepared",
            f"Run 'python -m podium.local.models.prepare {name}'.",
        )


def _disk(folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    text = f"{free / _GIB:.1f} GiB free at {existing}"
    if free < _LOW_DISK:
        return Finding("warn", "disk", text, "Free some, or choose another --data-dir.")
    return Finding("ok", "disk", text)


def _memory() -> Finding:
    available = _available_memory()
    if available is None:
        return Finding("ok", "memory", "unknown on this system")
    text = f"{available / _GIB:.1f} GiB available"
    if available < _LOW_MEMORY:
        return Finding("warn", "memory", text, "The engine and the trainer need about 4 GiB.")
    return Finding("ok", "memory", text)


def _available_memory() -> int | None:
    """Bytes: the least of what the machine has free and what the container's limit leaves."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    free = int(fields["MemAvailable"].split()[0]) * 1024
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="utf-8").strip()
        return min(free, int(limit) - int(used))
    except (OSError, ValueError):
        return free


def _cpu() -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    flags = _cpu_flags()
    known = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    gpu = shutil.which("nvidia-smi") is not None
    text = f"{count} cores" + (f", {' '.join(known)}" if known else "")
    text += ", an NVIDIA driver" if gpu else ", no GPU"
    if flags and "avx2" not in flags and not gpu:
        return Finding("fail", "cpu", text, "vLLM's CPU build needs AVX2; use another machine.")
    return Finding("ok", "cpu", text)


def _cpu_flags() -> Sequence[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return line.split(":", 1)[1].split()
    except OSError:
        pass
    return ()
