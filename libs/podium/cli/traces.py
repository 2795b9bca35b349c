"""Where a trace is to be seen, by the variable of whoever asks."""

from __future__ import annotations

import os

from podium.core import trace_links
from podium.types.v1 import trajectory_pb2 as pb

VARIABLE = "PODIUM_TRACE_URL"
"""Such as `https://langfuse.example/project/p/traces/{trace_id}`."""


def link(trajectory: pb.Trajectory) -> str:
    """The address of an episode's trace; empty where none is kept, or no template is set."""
    return trace_links.link(os.environ.get(VARIABLE, ""), trajectory)
