"""The lines that install Podium do as they are typed, one after the other, in one shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import podium
import pytest
from support.document_commands import ROOT, commands, pages
from support.gathered import wrong_in
from support.programs import missing

if shutil.which("git") is None:
    pytest.skip(missing("git", "git"), allow_module_level=True)

PAGE = (ROOT / "docs/first-task.md").read_text()
# What would download gigabytes, in whose place these write down what they are given.
PROGRAMS = ("pip", "python3.11")


def test_the_install_lines_give_pip_the_wheel_and_torchs_index(tmp_path: Path) -> None:
    block = PAGE[PAGE.index("    python3.11 -m pip wheel") :].partition("\n\n")[0]
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/activate").touch()
    for name in PROGRAMS:
        program = tmp_path / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> {name}.txt\n")
        program.chmod(0o755)
    path = f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["sh", "-euc", block], cwd=tmp_path, check=True, env={**os.environ, "PATH": path}
    )
    (index,) = re.findall(
        r"^TORCH_INDEX_URL \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert (tmp_path / "pip.txt").read_text().splitlines() == [
        "install",
        f"dist/podium-{podium.__version__}-py3-none-any.whl[local]",
        "--extra-index-url",
        index,
    ]


def unset(lines: list[str]) -> list[str]:
    """Variables that a page's commands use before they set them."""
    known: set[str] = set()
    unknown = []
    for line in lines:
        plain = re.sub(r"'[^']*'", "", line)
        known |= set(re.findall(r"\bfor (\w+) in ", plain))
        unknown += [
            f"{line}: {name}"
            for name in re.findall(r"\$\{?([A-Za-z_]\w*)", plain)
            if name not in known
        ]
        known |= set(re.findall(r"(?:^|\s)([A-Za-z_]\w*)=", plain))
    return unknown


def test_a_page_sets_each_variable_before_it_uses_it() -> None:
    wrong = wrong_in(pages(), lambda text: unset(list(commands(text))))
    assert not wrong, wrong


def test_a_variable_that_nothing_sets_is_seen() -> None:
    lines = ['pip install x --index-url "$URL"', "URL=$(sed -n 's/^A$B//p' Makefile)", "echo $URL"]
    assert unset(lines) == [f"{lines[0]}: URL"]
