"""The git hooks: they run what `make setup` installs, and hold messages to their rule."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from commit_message import complaints

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
HOOKS = [
    hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]
]


def run(message: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message)
    command = [sys.executable, "tools/commit_message.py", str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    "message",
    [
        "x" * 72,
        "ü" * 72,
        "A subject\n\nAnd why, in a line that may be as long as it likes: " + "x" * 100,
        "\n# On branch main, in a comment that is far longer than a subject may be\n#\n# x\n"
        "A subject\n# Changes\n",
        "A subject\n# ------------------------ >8 ------------------------\n+a change\n+more\n",
    ],
)
def test_a_message_that_fits_passes(message: str) -> None:
    assert complaints(message) == []


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("x" * 73, "73 characters; allowed are 72"),
        ("A subject\nthat goes on", "second line must be empty"),
        ("# nothing but a comment\n\n", "no subject"),
    ],
)
def test_another_is_refused_with_the_reason(message: str, complaint: str) -> None:
    (told,) = complaints(message)
    assert complaint in told


def test_the_hook_ends_as_git_asks_of_it(tmp_path: Path) -> None:
    done = run("ü" * 72, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("ü" * 73 + "\nthat goes on", tmp_path)
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["commit message"] * 2


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs_what_setup_installs(hook: dict[str, str]) -> None:
    program, *arguments = hook["entry"].split()
    assert hook["language"] == "system"
    assert Path(program).parent == Path(".venv/bin")
    assert (BIN / Path(program).name).exists()
    assert [a for a in arguments if a.startswith("tools/") and not (ROOT / a).is_file()] == []


def test_the_hooks_check_what_lint_checks() -> None:
    entries = [hook["entry"] for hook in HOOKS]
    for tool in ("ruff check", "ruff format", "buf lint"):
        assert any(entry.startswith(f".venv/bin/{tool}") for entry in entries), tool
