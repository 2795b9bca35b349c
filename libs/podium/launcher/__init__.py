"""Podium on one machine: the six services as child processes.

Not a cluster supervisor: in Kubernetes the same entry points are Deployments
and Jobs, and nothing here runs.
"""

from __future__ import annotations

from podium.launcher.config import LauncherConfig
from podium.launcher.events import Event, EventKind
from podium.launcher.launcher import Launcher

__all__ = ["Event", "EventKind", "Launcher", "LauncherConfig"]
