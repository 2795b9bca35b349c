"""Where a trace is to be seen, by the template of whoever looks."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from podium.types.v1 import trajectory_pb2 as pb

PLACE = "{trace_id}"
"""In a template such as `https://langfuse.example/project/p/traces/{trace_id}`."""

_TRACE_ID = re.compile("[0-9a-f]{32}")


def usable(template: str) -> bool:
    """Whether it is an address of a page, with the place of a trace's id."""
    return is_page(template) and PLACE in template


def is_page(address: str) -> bool:
    """Whether it may become a link: nothing else than a page of http or https may."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def link(template: str, trajectory: pb.Trajectory) -> str:
    """The address of an episode's trace; empty where none is kept, or the template is no page's."""
    # Clients write what they like into trajectories of their own.
    kept = _TRACE_ID.fullmatch(trajectory.trace_id) and trajectory.root_span_id
    address = template.strip().replace(PLACE, trajectory.trace_id)
    return address if kept and is_page(address) else ""
