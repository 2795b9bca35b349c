"""Podium: reinforcement learning for LLM agents on Kubernetes.

The generated contracts are `podium.<noun>.v1`; everything else in this
package is the shared library. Importing it loads neither torch nor vLLM, and
what it exports not before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.core.specs.generated import (
        BudgetSpec,
        ClientSpec,
        Criterion,
        DistillationSpec,
        EnvironmentSpec,
        EpisodeSpec,
        EvaluationSpec,
        ForkSpec,
        HttpScorerSpec,
        JobSpec,
        JudgeModel,
        LangfuseSpec,
        LoraSpec,
        LossSpec,
        MlflowSpec,
        ModelPlayer,
        OpenPipeSpec,
        Rendering,
        RetentionSpec,
        RewardSpec,
        RolloutSpec,
        RubricSpec,
        RulerSpec,
        SamplingParams,
        Scorer,
        SftSpec,
        TrackingSpec,
        TrainerSpec,
        TrainingSpec,
        WandbSpec,
        WeightedCriteria,
        WeightedEnvironment,
    )
    from podium.sdk.chosen import Chosen
    from podium.sdk.client import AsyncClient
    from podium.sdk.ruler import ruler, ruler_score_group
    from podium.sdk.runs import JobRun
    from podium.sdk.sft import SftRun
    from podium.sdk.sync import Client, train, train_sft
    from podium.training.baseline import Model
    from podium.training.gather import gather_trajectories, gather_trajectory_groups
    from podium.training.in_process import InProcessBackend
    from podium.training.model import TrainableModel
    from podium.training.retry import retry
    from podium.training.sft.art import (
        SFTChunk,
        create_lr_schedule,
        create_sft_dataset_iterator,
        iterate_file,
        train_sft_from_file,
    )
    from podium.training.step_config import TrainConfig, TrainSFTConfig
    from podium.training.trajectories import History, Trajectory, TrajectoryGroup

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "BudgetSpec",
    "Chosen",
    "Client",
    "ClientSpec",
    "Criterion",
    "DistillationSpec",
    "EnvironmentSpec",
    "EpisodeSpec",
    "EvaluationSpec",
    "ForkSpec",
    "History",
    "HttpScorerSpec",
    "InProcessBackend",
    "JobRun",
    "JobSpec",
    "JudgeModel",
    "LangfuseSpec",
    "LoraSpec",
    "LossSpec",
    "MlflowSpec",
    "Model",
    "ModelPlayer",
    "OpenPipeSpec",
    "Rendering",
    "RetentionSpec",
    "RewardSpec",
    "RolloutSpec",
    "RubricSpec",
    "RulerSpec",
    "SFTChunk",
    "SamplingParams",
    "Scorer",
    "SftRun",
    "SftSpec",
    "TrackingSpec",
    "TrainConfig",
    "TrainSFTConfig",
    "TrainableModel",
    "TrainerSpec",
    "TrainingSpec",
    "Trajectory",
    "TrajectoryGroup",
    "WandbSpec",
    "WeightedCriteria",
    "WeightedEnvironment",
    "create_lr_schedule",
    "create_sft_dataset_iterator",
    "gather_trajectories",
    "gather_trajectory_groups",
    "iterate_file",
    "retry",
    "ruler",
    "ruler_score_group",
    "train",
    "train_sft",
    "train_sft_from_file",
]

_HOMES = {
    "AsyncClient": "sdk.client",
    "BudgetSpec": "core.specs.generated",
    "Chosen": "sdk.chosen",
    "Client": "sdk.sync",
    "ClientSpec": "core.specs.generated",
    "Criterion": "core.specs.generated",
    "DistillationSpec": "core.specs.generated",
    "EnvironmentSpec": "core.specs.generated",
    "EpisodeSpec": "core.specs.generated",
    "EvaluationSpec": "core.specs.generated",
    "ForkSpec": "core.specs.generated",
    "History": "training.trajectories",
    "HttpScorerSpec": "core.specs.generated",
    "InProcessBackend": "training.in_process",
    "JobRun": "sdk.runs",
    "JobSpec": "core.specs.generated",
    "JudgeModel": "core.specs.generated",
    "LangfuseSpec": "core.specs.generated",
    "LoraSpec": "core.specs.generated",
    "LossSpec": "core.specs.generated",
    "MlflowSpec": "core.specs.generated",
    "ModelPlayer": "core.specs.generated",
    "Model": "training.baseline",
    "OpenPipeSpec": "core.specs.generated",
    "Rendering": "core.specs.generated",
    "RetentionSpec": "core.specs.generated",
    "RewardSpec": "core.specs.generated",
    "RolloutSpec": "core.specs.generated",
    "RubricSpec": "core.specs.generated",
    "RulerSpec": "core.specs.generated",
    "SFTChunk": "training.sft.art",
    "SamplingParams": "core.specs.generated",
    "Scorer": "core.specs.generated",
    "SftRun": "sdk.sft",
    "SftSpec": "core.specs.generated",
    "TrackingSpec": "core.specs.generated",
    "TrainConfig": "training.step_config",
    "TrainSFTConfig": "training.step_config",
    "TrainableModel": "training.model",
    "TrainerSpec": "core.specs.generated",
    "TrainingSpec": "core.specs.generated",
    "Trajectory": "training.trajectories",
    "TrajectoryGroup": "training.trajectories",
    "WandbSpec": "core.specs.generated",
    "WeightedCriteria": "core.specs.generated",
    "WeightedEnvironment": "core.specs.generated",
    "create_lr_schedule": "training.sft.art",
    "create_sft_dataset_iterator": "training.sft.art",
    "gather_trajectories": "training.gather",
    "gather_trajectory_groups": "training.gather",
    "iterate_file": "training.sft.art",
    "retry": "training.retry",
    "ruler": "sdk.ruler",
    "ruler_score_group": "sdk.ruler",
    "train": "sdk.sync",
    "train_sft": "sdk.sync",
    "train_sft_from_file": "training.sft.art",
}


def __getattr__(name: str) -> Any:
    """Imports on first use: the command line must not wait for what it does not need."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """What is there once it is used too, for completion."""
    return sorted({*globals(), *__all__})
