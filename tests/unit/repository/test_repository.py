"""What every file of the repository is held to."""

from __future__ import annotations

import re
import statistics
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support.programs import program

ROOT = Path(__file__).parents[3]
UNIT = ("tests", "unit")
MAX_LINES = 400
MAX_MEDIAN_LINES = 200

# One letter of each stands in brackets, or this file would find itself.
MACHINE_PATHS = re.compile(
    r"(?<![\w.])/(?:w[o]rk|r[o]ot|h[o]me/\w+|opt/p[y]pi|opt/w[h]eels|tmp/[w])(?![\w-])"
)
REGISTRY_HOSTS = re.compile(
    r"p[y]pi\.org|p[y]thonhosted|deb\.d[e]bian\.org|n[p]mjs\.org|cr[a]tes\.io|"
    r"proxy\.g[o]lang|ruby[g]ems\.org|download\.p[y]torch\.org"
)
# PyTorch's public CPU index, where PyPI has only CUDA builds; an argument of one target.
ALLOWED_HOSTS = {"Makefile"}


@cache
def tracked() -> list[Path]:
    listing = subprocess.run(
        [program("git", "git"), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [Path(name) for name in listing.split("\0") if name and (ROOT / name).is_file()]


@cache
def text_of(file: Path) -> str:
    try:
        return (ROOT / file).read_text()
    except UnicodeDecodeError:
        return ""


def hits(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    # Line by line only where there is one: of half a million lines none should be.
    return [
        f"{file}:{number}: {line.strip()[:120]}"
        for file in files
        if pattern.search(text_of(file))
        for number, line in enumerate(text_of(file).splitlines(), start=1)
        if pattern.search(line)
    ]


def test_the_patterns_find_what_they_are_for() -> None:
    work, root, home, wheels = ("/" + name for name in ("work", "root", "home", "opt/wheels"))
    for text in (f"cd {work}/main", f'"{root}/.cache"', f"{home}/anna/x", f"={wheels}"):
        assert MACHINE_PATHS.search(text), text
    for text in (f"docs{work}/x", f"{root}-cause", f"{root}s", f"a{home}/x"):
        assert not MACHINE_PATHS.search(text), text
    assert REGISTRY_HOSTS.search("https://py" + "pi.org/simple")


def test_no_file_names_a_path_of_one_machine() -> None:
    assert hits(MACHINE_PATHS, tracked()) == []


def test_no_file_names_a_package_registry() -> None:
    assert hits(REGISTRY_HOSTS, [f for f in tracked() if f.as_posix() not in ALLOWED_HOSTS]) == []


def modules() -> list[Path]:
    return [
        file
        for file in tracked()
        if file.suffix == ".py"
        and file.parts[0] in ("libs", "services", "tests", "bench", "examples", "tools")
        and "_pb2" not in file.name
        and file != Path("libs/podium/core/specs/generated.py")
    ]


def test_modules_are_small() -> None:
    lines = {file: len(text_of(file).splitlines()) for file in modules()}
    assert {file: count for file, count in lines.items() if count > MAX_LINES} == {}
    code = [count for file, count in lines.items() if file.parts[0] != "tests"]
    assert statistics.median(code) <= MAX_MEDIAN_LINES


@pytest.mark.parametrize("folder", ["libs", "services"])
def test_every_module_says_what_it_is_for(folder: str) -> None:
    silent = [
        str(file)
        for file in modules()
        if file.parts[0] == folder
        and text_of(file).strip()
        and not re.match(r'[ru]?"""\S', text_of(file).lstrip())
    ]
    assert silent == []


def test_unit_tests_load_nothing_heavy() -> None:
    """Every worker collects them all, and each of these takes seconds to load."""
    heavy = re.compile(
        r"^(from|import) (datasets|peft|transformers|trl|vllm|podium_trainer\.learner\."
        r"(adapter|checkpoint|families|model|network|parallel|session|sharded|step))\b",
        re.MULTILINE,
    )
    files = [file for file in tracked() if file.suffix == ".py" and file.parts[:2] == UNIT]
    assert len(files) > 100
    assert hits(heavy, files) == []
