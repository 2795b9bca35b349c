"""Where a trace is to be seen, by the template of whoever looks."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from podium.types.v1 import trajectory_pb2 as pb

VARIABLE = "PODIUM_TRACE_URL"
"""Such as `https://langfuse.example/project/p/traces/{trace_id}`."""

_TRACE_ID = re.compile("[0-9a-f]{32}")


def link(trajectory: pb.Trajectory) -> str:
    """The address of an episode's trace; empty where none is kept, or no template is set."""
    template = os.environ.get(VARIABLE, "").strip()
    address = template.replace("{trace_id}", trajectory.trace_id)
    # Clients write what they like into trajectories of their own.
    kept = _TRACE_ID.fullmatch(trajectory.trace_id) and trajectory.root_span_id
    # Nothing else than a page may become a link.
    return address if kept and urlsplit(address).scheme in ("http", "https") else ""
