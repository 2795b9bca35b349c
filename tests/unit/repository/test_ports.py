"""Ports that tests give to what they start are no others' who start something at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.processes import free_port

# More than a process claims at once; the end of its input is the end of the process.
MANY = 120
OTHER = f"""
import sys
from support.processes import free_port
print(*(free_port() for _ in range({MANY})), flush=True)
sys.stdin.read()
"""


def test_processes_beside_each_other_are_given_ports_apart() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        there = set(other.stdout.readline().split())
        here = {str(free_port()) for _ in range(MANY)}
        assert len(here) == len(there) == MANY
        assert not here & there
