"""The make targets that guard the contracts and the set-up, on copies that they must refuse."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, metadata, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.programs import program

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
SPEC = Path("proto/podium/types/v1/spec.proto")


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The contracts, their generated code and the tools, free to be spoiled."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("proto", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    for folder in (ROOT / "libs" / "podium").glob("*/v1"):
        target = tmp_path / folder.relative_to(ROOT)
        shutil.copytree(folder, target, ignore=ignored)
    return tmp_path


def test_generated_code_is_what_the_contracts_give() -> None:
    result = run("sh", "tools/proto_check.sh", BIN, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_proto_check_sees_a_changed_a_missing_and_a_left_over_file(copy: Path) -> None:
    generated = copy / "libs/podium/types/v1"
    with (generated / "spec_pb2.pyi").open("a") as stream:
        stream.write("# edited by hand\n")
    (generated / "policy_pb2.py").unlink()
    (generated / "gone_pb2.py").touch()
    result = run("sh", "tools/proto_check.sh", BIN, cwd=copy)
    assert result.returncode == 1
    found = {line.rpartition("/")[2] for line in result.stderr.splitlines() if "/" in line}
    assert found == {"spec_pb2.pyi", "policy_pb2.py", "gone_pb2.py"}


def test_contracts_pass_buf_lint() -> None:
    result = run(BIN / "buf", "lint", cwd=ROOT)
    assert result.returncode == 0, result.stdout


def test_buf_lint_wants_comments_and_house_names(copy: Path) -> None:
    with (copy / SPEC).open("a") as stream:
        stream.write("message lower_case { string x = 1; }\n")
    result = run(BIN / "buf", "lint", cwd=copy)
    assert result.returncode != 0
    assert "lower_case" in result.stdout
    assert "comment" in result.stdout


def break_contract(spec: Path) -> None:
    text = spec.read_text()
    broken = text.replace("string base_model = 1", "string base_model = 99")
    assert broken != text
    spec.write_text(broken)


def test_proto_breaking_lets_additions_pass_and_refuses_a_renumbered_field(copy: Path) -> None:
    assert run("sh", "tools/proto_breaking.sh", BIN, cwd=copy).returncode == 0
    spec = copy / SPEC
    with spec.open("a") as stream:
        stream.write("// New.\nmessage Added {\n  // New.\n  string name = 1;\n}\n")
    added = run("sh", "tools/proto_breaking.sh", BIN, cwd=copy)
    assert added.returncode == 0, added.stdout
    break_contract(spec)
    broken = run("sh", "tools/proto_breaking.sh", BIN, cwd=copy)
    assert broken.returncode != 0
    assert "base_model" in broken.stdout


def test_proto_breaking_without_an_image_fails(copy: Path) -> None:
    (copy / "proto" / "released.binpb").unlink()
    missing = run("sh", "tools/proto_breaking.sh", BIN, cwd=copy)
    assert missing.returncode != 0
    assert "released.binpb" in missing.stderr


def test_proto_release_makes_todays_contracts_the_promised_ones(copy: Path) -> None:
    break_contract(copy / SPEC)
    assert run("sh", "tools/proto_release.sh", BIN, cwd=copy).returncode == 0
    assert run("sh", "tools/proto_breaking.sh", BIN, cwd=copy).returncode == 0


def test_contracts_keep_to_the_width_of_the_code() -> None:
    wide = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sorted((ROOT / "proto").rglob("*.proto"))
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if len(line) > 100
    ]
    assert wide == []


def test_another_python_is_refused_with_a_way_out(tmp_path: Path) -> None:
    other = tmp_path / "python3.9"
    other.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.9.1" && exit 0\nexit 1\n')
    other.chmod(0o755)
    result = run("sh", "tools/system.sh", other, cwd=ROOT)
    assert result.returncode == 1
    assert "Python 3.9.1" in result.stderr
    assert "Install Python 3.11" in result.stderr
    missing = run("sh", "tools/system.sh", "", cwd=ROOT)
    assert missing.returncode == 1
    assert "no python3" in missing.stderr


def test_make_help_lists_every_target() -> None:
    listed = run("make", "help", cwd=ROOT).stdout
    phony = [
        line.removeprefix(".PHONY: ").strip()
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith(".PHONY: ")
    ]
    assert len(phony) > 10
    assert [target for target in phony if f"  {target} " not in listed] == []


def test_mypy_is_strict_over_everything_but_the_tests() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"] is True
    shown = run("make", "--dry-run", "type", cwd=ROOT).stdout
    (checked,) = re.findall(r"^\S+/mypy (.*)$", shown, re.MULTILINE)
    listed = run(program("git", "git"), "ls-files", "*.py", cwd=ROOT).stdout.splitlines()
    folders = {name.partition("/")[0] for name in listed}
    assert set(checked.split()) == folders - {"tests"}
    # What is exempt belongs to somebody else, is generated, or is one class of a benchmark.
    exempt = {name for each in settings["overrides"] for name in each["module"]}
    assert {name for name in exempt if name.startswith(("podium", "bench"))} == {
        "podium.*.v1.*",
        "bench.trainer.trl_side",
    }


def pins(name: str) -> dict[str, Requirement]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    required = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in required}


@pytest.mark.parametrize("name", ["laptop.txt", "dev.txt", "openenv.txt", "verifiers.txt"])
def test_a_lock_holds_exact_versions_and_nothing_else(name: str) -> None:
    for requirement in pins(name).values():
        assert [part.operator for part in requirement.specifier] == ["=="], requirement
        assert requirement.url is None
        assert requirement.marker is None


@pytest.mark.parametrize("name", ["laptop.txt", "dev.txt"])
def test_what_is_installed_is_what_is_locked(name: str) -> None:
    wrong = {
        str(requirement): version(package)
        for package, requirement in pins(name).items()
        if not requirement.specifier.contains(version(package), prereleases=True)
    }
    assert wrong == {}


# What laptop.txt leaves out: only the tests, an environment of its own or a GPU need it here.
LOCK_OF_EXTRA = {
    "datasets": "dev.txt",
    "gpu": "inference-cuda.txt",
    "gymnasium": "dev.txt",
    "verifiers": "verifiers.txt",
}


@pytest.mark.parametrize("extra", ["", *metadata("podium").get_all("Provides-Extra", [])])
def test_a_lock_covers_what_podium_requires(extra: str) -> None:
    locked = pins("laptop.txt") | pins(LOCK_OF_EXTRA.get(extra, "laptop.txt"))
    for requirement in map(Requirement, distribution("podium").requires or []):
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        pin = locked.get(canonicalize_name(requirement.name))
        assert pin is not None, requirement
        number = next(iter(pin.specifier)).version
        assert requirement.specifier.contains(number, prereleases=True), requirement


def test_what_tests_need_is_not_locked_twice() -> None:
    assert not pins("laptop.txt").keys() & pins("dev.txt").keys()
