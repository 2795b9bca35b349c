"""Podium on one machine: the six services as child processes.

Not a cluster supervisor: in Kubernetes the same entry points are Deployments
and Jobs, and nothing here runs.
"""

from __future__ import annotations

from podium.local.launcher.config import LauncherConfig
from podium.local.launcher.events import Event, EventKind
from podium.local.launcher.launcher import Launcher

__all__ = ["Event", "EventKind", "Launcher", "LauncherConfig"]
