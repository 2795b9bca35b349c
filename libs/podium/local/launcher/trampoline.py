"""Arms the parent-death signal, then becomes the service.

Run as `python -I -S trampoline.py PARENT_PID PROGRAM ARGUMENT…`. The signal
stays armed through exec. A program of its own instead of a hook between fork
and exec: the launcher has gRPC threads, and only vfork is safe beside them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Never returns."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the signal was armed.
    if os.getppid() != int(parent):
        os._exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
