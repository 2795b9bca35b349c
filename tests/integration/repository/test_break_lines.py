"""The script that breaks lines: what survives is told, and what no longer fits is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tools" / "break_lines.py"

PRODUCT = """\
def clip(value: int) -> int:
    if value > 10:
        return 10
    if value < 0:
        return 0
    return value
"""
# A name of the product's own shows that what is imported is the copy and not the install.
TESTS = """\
from podium_trainer.clipping import clip

def test_the_upper_bound() -> None:
    assert clip(11) == 10

def test_what_fails_anyway() -> None:
    assert clip(5) == 6
"""
BREAKS = """\
clipping:
  suite: [tests/unit]
  breaks:
    - {name: upper bound, module: podium_trainer.clipping, old: return 10, new: return 11,
       why: It is too high., tests: [test_first.py]}
    - {name: lower bound, module: podium_trainer.clipping, old: return 0, new: return -1,
       why: It is too low., tests: [test_other.py]}
    - {name: value, module: podium_trainer.clipping, old: return value, new: return -value,
       why: It is another., tests: [test_always.py]}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A product of one module, whose suite looks at its upper bound alone."""
    package = tmp_path / "services" / "podium_trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "clipping.py").write_text(PRODUCT)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.hatch.build]\ndev-mode-dirs = ["services"]\n[tool.pytest.ini_options]\n'
    )
    upper, _, always = TESTS.partition("def test_what")
    head = upper.partition("def ")[0]
    for name, text in (
        ("unit/test_first.py", upper),
        ("unit/test_other.py", "def test_nothing() -> None:\n    pass\n"),
        ("slow/test_always.py", f"{head}def test_what{always}"),
    ):
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "break_lines.yaml").write_text(BREAKS)
    return tmp_path


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--tree", str(tree), *arguments]
    # pytest's plugins take ten times as long to load as these tests to run.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def row(output: str, name: str) -> str:
    """What the table says of a break."""
    (line,) = (line for line in output.splitlines() if line.startswith(f"clipping  {name} "))
    return line


def test_what_no_test_notices_is_told_and_fails(tree: Path) -> None:
    ran = run(tree)
    assert ran.returncode == 1, ran.stderr
    assert "unit/test_first.py::test_the_upper_bound" in row(ran.stdout, "upper bound")
    assert "SURVIVED" in row(ran.stdout, "lower bound")
    # Its first test fails with the break and without: that is no proof.
    assert "fails without the break too" in row(ran.stdout, "value")
    assert "1 of 3 noticed" in ran.stdout
    assert (tree / "services/podium_trainer/clipping.py").read_text() == PRODUCT


def test_breaks_that_are_all_noticed_are_a_success(tree: Path) -> None:
    ran = run(tree, "--only", "upper", "--workers", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of 1 noticed" in ran.stdout


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("return value", "return the_value", "stand 0 times"),
        ("return value", "return value\n\n\ndef other(value):\n    return value", "stand 2 times"),
        ("value < 0", "value < (0)", ""),
    ],
)
def test_old_lines_that_do_not_stand_there_once_are_an_error(
    tree: Path, old: str, new: str, told: str
) -> None:
    file = tree / "services/podium_trainer/clipping.py"
    file.write_text(PRODUCT.replace(old, new))
    ran = run(tree, "--list")
    assert ran.returncode == (2 if told else 0)
    assert told in ran.stderr


def test_a_test_that_is_gone_and_a_break_that_is_no_python_are_errors(tree: Path) -> None:
    file = tree / "tools" / "break_lines.yaml"
    file.write_text(BREAKS.replace("test_other", "test_gone").replace("return 11", "return ("))
    ran = run(tree, "--list")
    assert ran.returncode == 2
    assert "there is no test_gone.py under tests/" in ran.stderr
    assert "upper bound: its new lines are no Python" in ran.stderr


def test_every_break_of_the_product_fits_it() -> None:
    """Who changes such a line changes its break with it."""
    ran = run(ROOT, "--list")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("services/") >= 40
