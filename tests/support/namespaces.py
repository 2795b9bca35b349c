"""Whether this machine lets bubblewrap make what a sandbox is made of."""

from __future__ import annotations

import subprocess

import pytest
from support.programs import missing


def _refusal() -> str:
    """What bubblewrap says by itself, without anything of ours; empty when it can."""
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return missing("bwrap", "bubblewrap")
    except OSError as error:
        # Tests are to be skipped, not their collection stopped.
        return f"`bwrap` cannot be run here: {error}"
    return f"this machine forbids sandboxes: {done.stderr.strip()}" if done.returncode else ""


# As in a container whose seccomp profile forbids namespaces; docs/performance.md says so too.
REFUSAL = _refusal()
needs_namespaces = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)
