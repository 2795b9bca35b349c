"""docs/reference/field_rows.md against the tests that it names."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs/reference/field_rows.md").read_text()
ROWS = {int(row): text for row, text in re.findall(r"^\| T(\d+) \|(.+)\|$", DOCUMENT, re.MULTILINE)}


def test_every_row_names_tests_of_its_number_that_exist() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    text = "\n".join(path.read_text() for path in files)
    defined = set(re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))
    assert sorted(ROWS) == list(range(19, 27))
    for row, told in ROWS.items():
        named = re.findall(r"`(test_t\d+_\w+)`", told)
        files_of_row = [path for path in files if path.name.startswith(f"test_t{row}_")]
        assert named or files_of_row, row
        assert sorted(set(named) - defined) == []
        assert {name for name in named if not name.startswith(f"test_t{row}_")} == set()


def test_every_test_of_a_row_is_named_there() -> None:
    files = (ROOT / "tests").rglob("test_*.py")
    text = "\n".join(path.read_text() for path in files)
    found = re.findall(r"^(?:async )?def (test_t(?:19|2[0-5])_\w+)\(", text, re.MULTILINE)
    assert found
    assert [name for name in found if f"`{name}`" not in DOCUMENT] == []
