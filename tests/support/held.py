"""Whether the tests are there that hold what was once wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def gone(names: Iterable[str]) -> Iterator[str]:
    """Of tests by their file below tests/ and name, `FILE::NAME`, those that there are not."""
    for name in names:
        file, _, test = name.partition("::")
        text = (TESTS / file).read_text() if (TESTS / file).is_file() else ""
        if not re.search(rf"^(async )?def {test}\(", text, re.MULTILINE):
            yield name
