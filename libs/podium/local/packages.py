"""Whether the packages that are installed fit together."""

from __future__ import annotations

from importlib import metadata

# vLLM asks for them. Those on PyPI are of torch's CUDA build, and on PyTorch's CPU index of its.
_OF_TORCH = ("torchvision", "torchaudio", "torchcodec")


def misfits() -> list[str]:
    """`torchvision 0.28.0` and its like, which are of another build than a torch for CPUs alone.

    Reads metadata, and imports nothing: torch takes seconds.
    """
    if not _version("torch").endswith("+cpu"):
        return []
    found = {name: _version(name) for name in _OF_TORCH}
    return [
        f"{name} {version}" for name, version in found.items() if version and "+" not in version
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
