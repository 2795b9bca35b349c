"""What the documents show for copying: the indented blocks of a section."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def blocks(document: str, heading: str) -> list[str]:
    """The blocks of one section, `## Heading` or `### Heading`, each as one would copy it."""
    text = (DOCS / document).read_text()
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##+ |\Z)", text, re.M | re.S)
    assert found, f"{document} has no section {heading}"
    indented = re.findall(r"^\n((?:    .*\n|\n(?=    ))+)", found[1], re.M)
    return [textwrap.dedent(block) for block in indented]
