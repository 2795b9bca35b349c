"""Runs inside the sandbox, ahead of the untrusted program.

Its source is what Python is started with there: `boot.py LIMITS PROGRAM_FD`.
"""

from __future__ import annotations

import json
import os
import resource
import sys


def boot() -> None:
    """Lowers the limits for good, says so with one byte, waits for one, and runs the program."""
    limits, descriptor = json.loads(sys.argv[1]), int(sys.argv[2])
    with open(descriptor, "rb") as file:
        program = file.read()
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
    sys.argv = ["program.py"]
    os.write(1, b"\n")
    if os.read(0, 1) != b"\n":
        # Whoever started this died before bubblewrap could have noticed.
        return
    exec(compile(program, "program.py", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    boot()
