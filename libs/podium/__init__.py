"""Podium: reinforcement learning for LLM agents on Kubernetes.

The generated contracts are `podium.<noun>.v1`; everything else in this
package is the shared library. Importing it loads neither torch nor vLLM, and
what it exports not before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.sdk.client import AsyncClient
    from podium.sdk.ruler import ruler, ruler_score_group
    from podium.sdk.sync import Client
    from podium.training.gather import gather_trajectories, gather_trajectory_groups
    from podium.training.in_process import InProcessBackend
    from podium.training.model import Model, TrainableModel, TrainConfig
    from podium.training.retry import retry
    from podium.training.trajectories import History, Trajectory, TrajectoryGroup

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "History",
    "InProcessBackend",
    "Model",
    "TrainConfig",
    "TrainableModel",
    "Trajectory",
    "TrajectoryGroup",
    "gather_trajectories",
    "gather_trajectory_groups",
    "retry",
    "ruler",
    "ruler_score_group",
]

_HOMES = {
    "AsyncClient": "sdk.client",
    "Client": "sdk.sync",
    "History": "training.trajectories",
    "InProcessBackend": "training.in_process",
    "Model": "training.model",
    "TrainConfig": "training.model",
    "TrainableModel": "training.model",
    "Trajectory": "training.trajectories",
    "TrajectoryGroup": "training.trajectories",
    "gather_trajectories": "training.gather",
    "gather_trajectory_groups": "training.gather",
    "retry": "training.retry",
    "ruler": "sdk.ruler",
    "ruler_score_group": "sdk.ruler",
}


def __getattr__(name: str) -> Any:
    """Imports on first use: the command line must not wait for what it does not need."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
