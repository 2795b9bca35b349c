"""Where a process puts its Unix sockets."""

from __future__ import annotations

import os
import tempfile

# Of the 107 bytes that a path may have; the rest is for the names below.
_LONGEST = 70


def socket_folder() -> str:
    """The folder for temporary files, or /tmp where its own path leaves a socket's no room."""
    given = tempfile.gettempdir()
    return given if len(os.fsencode(given)) <= _LONGEST else "/tmp"
