"""Builds the services' images and prints their sizes.

usage: python tools/images.py [--tag dev] [--variant cpu] [--only judge,registry]

Builds with Docker or Podman where there is one. PODIUM_CLUSTER_TOOL names the script of a cluster
that builds without either (`TOOL image -t TAG -f DOCKERFILE CONTEXT OUT.tar`) and with this
machine's pip settings; then the images are archives in build/images, for its `load`. An archive
whose ingredients have not changed stays.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "images"
BASE = "python:3.11-slim-bookworm"
LIGHT = ("controller", "registry", "judge", "rollout", "tracking")
HEAVY = ("trainer", "inference")
# 400 MB less the 130 MB of Docker Hub's base: another builder's base may be of another size.
LIGHT_ADDS_AT_MOST = 270_000_000


@dataclass(frozen=True)
class Image:
    """One image to build."""

    service: str
    tag: str
    variant: str

    @property
    def name(self) -> str:
        """podium/judge:dev; the CUDA variant's tag ends in -cuda."""
        suffix = "-cuda" if self.service in HEAVY and self.variant == "cuda" else ""
        return f"podium/{self.service}:{self.tag}{suffix}"

    @property
    def archive(self) -> Path:
        """Where the archive lies, with a builder that makes one."""
        return OUT / (self.name.replace("/", "-").replace(":", "-") + ".tar")

    def arguments(self) -> list[str]:
        """The options of any builder."""
        pairs = {"VERSION": self.tag, "REVISION": _revision()}
        if self.service in HEAVY:
            pairs["VARIANT"] = self.variant
        options = ["-t", self.name, "-f", f"services/{self.service}/Dockerfile"]
        for key, value in pairs.items():
            options += ["--build-arg", f"{key}={value}"]
        return options


def _revision() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def _ingredients(image: Image) -> Iterator[Path]:
    yield ROOT / "services" / image.service / "Dockerfile"
    yield ROOT / ".dockerignore"
    yield from (ROOT / "pyproject.toml", ROOT / "LICENSE")
    for pattern in ("build.txt", f"{image.service}*.txt"):
        yield from sorted((ROOT / "requirements").glob(pattern))
    for folder in ("libs", "services"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.name != "Dockerfile":
                yield path


def _digest(image: Image) -> str:
    state = hashlib.sha256(image.name.encode())
    for path in _ingredients(image):
        state.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return state.hexdigest()


def build_archive(tool: Path, image: Image) -> tuple[int, int]:
    """Builds into an archive; returns the bytes of the image and of what it adds to its base."""
    stamp = image.archive.with_suffix(".sha256")
    digest = _digest(image)
    if not (image.archive.exists() and stamp.exists() and stamp.read_text() == digest):
        stamp.unlink(missing_ok=True)
        OUT.mkdir(parents=True, exist_ok=True)
        _run([str(tool), "image", *image.arguments(), ".", str(image.archive)], image)
        stamp.write_text(digest)
    with tarfile.open(image.archive) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        layers = json.load(manifest)[0]["Layers"]
        sizes = [archive.getmember(layer).size for layer in layers]
    return sum(sizes), sum(sizes[1:])


def build_here(engine: str, image: Image) -> tuple[int, int]:
    """Builds into the engine's own store; returns as `build_archive` does."""
    options = image.arguments()
    index = os.environ.get("TORCH_INDEX_URL", "")
    if index and image.service in HEAVY and image.variant == "cpu":
        options += ["--build-arg", f"TORCH_INDEX_URL={index}"]
    _run([engine, "build", *options, "."], image)
    whole, base = (
        int(
            subprocess.run(
                [engine, "image", "inspect", "--format", "{{.Size}}", name],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for name in (image.name, BASE)
    )
    return whole, whole - base


def _run(command: Sequence[str], image: Image) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{image.name} was not built:\n{(done.stdout + done.stderr)[-4000:]}")


def main() -> None:
    """Builds, prints a line an image, and fails when a light one has grown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", default="dev")
    parser.add_argument("--variant", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default=",".join((*LIGHT, *HEAVY)))
    options = parser.parse_args()
    unknown = set(options.only.split(",")) - {*LIGHT, *HEAVY}
    if unknown:
        sys.exit(
            f"--only: got {', '.join(sorted(unknown))}; allowed are {', '.join(LIGHT + HEAVY)}"
        )
    tool = os.environ.get("PODIUM_CLUSTER_TOOL", "")
    # Buildah, unlike the others, keeps layers for the next build only when it is told to.
    os.environ.setdefault("BUILDAH_LAYERS", "true")
    engine = next((name for name in ("docker", "podman") if shutil.which(name)), "")
    if not tool and not engine:
        sys.exit("there is neither Docker nor Podman here, and PODIUM_CLUSTER_TOOL is not set")
    grown = []
    for service in options.only.split(","):
        image = Image(service, options.tag, options.variant)
        whole, added = build_archive(Path(tool), image) if tool else build_here(engine, image)
        print(f"{image.name:34}{whole / 1e6:8.0f} MB, {added / 1e6:6.0f} MB on {BASE}", flush=True)
        if service in LIGHT and added > LIGHT_ADDS_AT_MOST:
            grown.append(image.name)
    if grown:
        sys.exit(f"more than {LIGHT_ADDS_AT_MOST / 1e6:.0f} MB on the base: {', '.join(grown)}")


if __name__ == "__main__":
    main()
