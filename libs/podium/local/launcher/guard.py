"""Kills the services' process groups when the launcher dies without a word.

The kernel's parent-death signal reaches the services alone; vLLM's engine is
a process of theirs and would live on, holding gigabytes. This process reads
`+GROUP` and `-GROUP` lines on stdin, and the end of the file, which comes
with the launcher's death however it died, kills the groups that are left.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Runs until stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


if __name__ == "__main__":
    main()
