"""Runs untrusted Python, in bubblewrap, with limits on everything that it could use up.

    sandbox = Sandbox(Limits(wall_seconds=5))
    outcome = await sandbox.run("print(6 * 7)")
    assert outcome.stdout == b"42\n"

Nothing ever runs unsandboxed: where bubblewrap is missing or may not make
namespaces, starting raises. README.md says what a program can see and do, and
what holds each limit.
"""

from podium.environments.sandbox.limits import Limits
from podium.environments.sandbox.process import Outcome, Process
from podium.environments.sandbox.sandbox import Sandbox

__all__ = ["Limits", "Outcome", "Process", "Sandbox"]
