"""Without the programs that tests start, the suite is collected, and says what it skips."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDS = {
    "bwrap": "tests/integration/environments/test_coding.py",
    "git": "tests/unit/repository/test_documents.py",
}


def without_programs(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest where the PATH has nothing."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env={**os.environ, "PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)
def test_every_unit_test_is_collected(tmp_path: Path) -> None:
    found = without_programs(tmp_path, "--collect-only", "tests/unit")
    assert found.returncode == 0, found.stdout[-2000:]
    assert "error" not in found.stdout.splitlines()[-1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", NEEDS)
def test_what_needs_a_program_is_skipped_by_its_name(program: str, tmp_path: Path) -> None:
    found = without_programs(tmp_path, NEEDS[program])
    assert found.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), found.stdout[-2000:]
    summary = found.stdout.splitlines()[-1]
    assert "skipped" in summary
    assert "passed" not in summary
    assert f"`{program}` is not installed: install the package" in found.stdout
