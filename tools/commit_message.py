"""Refuses a commit message whose subject does not fit where git and GitHub show it.

usage: python tools/commit_message.py FILE

A git hook of the kind commit-msg: `.pre-commit-config.yaml` runs it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

LONGEST = 72
# Below this line `git commit --verbose` shows the change.
_SCISSORS = "# ------------------------ >8 ------------------------"


def complaints(message: str) -> list[str]:
    """What is wrong with a message; its comments, which git takes out, do not count."""
    written, _, _ = message.partition(_SCISSORS)
    lines = [line.rstrip() for line in written.splitlines() if not line.startswith("#")]
    while lines and not lines[0]:
        del lines[0]
    if not lines:
        return ["there is no subject"]
    found = []
    if len(lines[0]) > LONGEST:
        found.append(f"the subject has {len(lines[0])} characters; allowed are {LONGEST}")
    if len(lines) > 1 and lines[1]:
        found.append("the second line must be empty; the reason for the change comes after it")
    return found


def main() -> None:
    """Exits with 1 when there is a complaint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    found = complaints(parser.parse_args().file.read_text(encoding="utf-8"))
    for complaint in found:
        print(f"commit message: {complaint}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
