"""What a client says of the step that its batch is for, in place of the job's own training."""

from __future__ import annotations

from collections.abc import Sequence

from podium.core.contract import complete_training
from podium.types.v1 import spec_pb2, trajectory_pb2


def training_of(
    training: spec_pb2.TrainingSpec, groups: Sequence[trajectory_pb2.Group]
) -> spec_pb2.TrainingSpec:
    """How a step on the groups trains: as the job does, or on demonstrations.

    What is about the weights, the optimizer and the rows stays the job's; so does all of a job
    that knows nothing but demonstrations.
    """
    shown = groups and groups[0].batch_training.supervised
    if not shown or training.loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
        return training
    made = spec_pb2.TrainingSpec()
    made.CopyFrom(training)
    made.loss.Clear()
    made.loss.objective = spec_pb2.OBJECTIVE_SUPERVISED
    made.mini_batches = made.epochs = 1
    return complete_training(made)


def rate_of(groups: Sequence[trajectory_pb2.Group], otherwise: float) -> float:
    """The step's learning rate; `otherwise` is that of the job's schedule."""
    if groups and groups[0].batch_training.HasField("learning_rate"):
        return groups[0].batch_training.learning_rate
    return otherwise
