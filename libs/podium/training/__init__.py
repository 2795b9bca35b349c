"""Client-driven training: an agent's own code makes the rollouts, `model.train` learns from them.

    client = podium.AsyncClient()
    model = await client.models.register("my-agent", "smollm2-135m-instruct")
    groups = await podium.gather_trajectory_groups(
        podium.TrajectoryGroup(rollout(model, scenario) for _ in range(8)) for scenario in batch
    )
    await model.train(groups)

A rollout calls the model with `model.openai_client()`, or any client that is given
`model.inference_base_url` and `model.inference_api_key`. What the engine sampled is
captured there, token for token. The names are those of OpenPipe's ART.
"""

from __future__ import annotations

from podium.training.backend import Backend, TrainResult
from podium.training.baseline import Model
from podium.training.gather import gather_trajectories, gather_trajectory_groups
from podium.training.histories import Joined
from podium.training.model import TrainableModel
from podium.training.step_config import TrainConfig
from podium.training.trajectories import (
    History,
    Trajectory,
    TrajectoryException,
    TrajectoryGroup,
)

__all__ = [
    "Backend",
    "History",
    "Joined",
    "Model",
    "TrainConfig",
    "TrainResult",
    "TrainableModel",
    "Trajectory",
    "TrajectoryException",
    "TrajectoryGroup",
    "gather_trajectories",
    "gather_trajectory_groups",
]
