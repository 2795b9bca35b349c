"""Without the programs that tests start, the suite is collected, and says what it skips."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.full import full

ROOT = Path(__file__).parents[3]
NEEDS = {
    "bwrap": "tests/integration/environments/test_coding.py",
    "git": "tests/unit/repository/test_documents.py",
    "promtool": "tests/chart/test_alerts.py::test_each_fault_fires_its_alert_and_no_other",
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


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_test_is_collected(tmp_path: Path) -> None:
    found = without_programs(tmp_path, "--collect-only", "tests")
    assert found.returncode == 0, found.stdout[-2000:]
    assert "error" not in found.stdout.splitlines()[-1]


def test_a_program_that_cannot_be_run_stops_no_collection(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("")
    (tmp_path / "bwrap").chmod(0o755)
    found = without_programs(tmp_path, "tests/integration/environments/test_coding.py")
    assert found.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), found.stdout[-2000:]
    assert "`bwrap` cannot be run here" in found.stdout


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", ["bwrap", full("git"), full("promtool")])
def test_what_needs_a_program_is_skipped_by_its_name(program: str, tmp_path: Path) -> None:
    found = without_programs(tmp_path, NEEDS[program])
    assert found.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), found.stdout[-2000:]
    summary = found.stdout.splitlines()[-1]
    assert "skipped" in summary
    assert "passed" not in summary
    assert f"`{program}` is not installed: install the package" in found.stdout
