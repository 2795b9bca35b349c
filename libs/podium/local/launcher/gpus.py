"""Whether the stack's trainer computes on a GPU, without loading torch to ask it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_DEVICES = Path("/dev")


def trainer_gpus(environment: Mapping[str, str], devices: Path = _DEVICES) -> int:
    """The GPUs of a trainer with this environment: one where there is any, for it is one process.

    Args:
        devices: where the kernel shows them.
    """
    if environment.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return 0
    # A build for CPUs sees none, whatever the machine has.
    try:
        computes = "+cpu" not in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return 0
    return int(computes and any(devices.glob("nvidia[0-9]*")))
