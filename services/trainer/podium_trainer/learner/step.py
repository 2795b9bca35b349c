"""One optimizer step, in one update or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from podium.kit.telemetry import traced, tracer
from podium.types.v1 import spec_pb2

from podium_trainer.domain.batch import Batch, row_budget
from podium_trainer.domain.mini_batches import ShuffleSeed, mini_batches, passes
from podium_trainer.domain.packing import pack
from podium_trainer.learner.gradient import Gradients, MiniBatchPart, go_on
from podium_trainer.learner.model import Policy
from podium_trainer.learner.optimizer import Optimizer
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.statistics import Statistics

_tracer = tracer(__name__)

_BY_UPDATE = ("loss", "clip_fraction", "policy_ratio_mean", "kl_step")


def take_step(
    policy: Policy,
    optimizer: Optimizer,
    batch: Batch,
    training: spec_pb2.TrainingSpec,
    draw: ShuffleSeed,
    *,
    learning_rate: float,
    row_tokens: int,
    cancelled: Callable[[], bool],
    moved: Callable[[], None],
    phases: Phases,
    ranks: Ranks,
) -> dict[str, float]:
    """Moves the weights by the batch, in `mini_batches` times `epochs` updates.

    Args:
        moved: called before each update: from then on the weights are not those before the step.

    Returns:
        The step's metrics.

    Raises:
        RequestCancelledError: `cancelled` said so.
        FailedPreconditionError: a gradient is not finite; it was not applied.
    """
    batches = mini_batches(batch, training, draw)
    parts = _parts(batches, training, row_tokens, cancelled, phases, ranks)
    gradients = Gradients(
        policy, parts, training.loss, cancelled=cancelled, phases=phases, ranks=ranks
    )
    order = passes(len(parts), training, draw)
    if len(order) > 1:
        with traced(_tracer, "old_policy"):
            gradients.begin(order[0])
    every = Statistics()
    norms: list[float] = []
    told: dict[str, float] = {}
    for update, number in enumerate(order, 1):
        with traced(_tracer, "forward_backward"):
            statistics = gradients.add(number)
        with traced(_tracer, "apply_gradient"):
            norm = apply_gradient(
                policy, optimizer, learning_rate=learning_rate, phases=phases, moved=moved
            )
        norms.append(norm)
        every.include(statistics)
        means = {**statistics.means(), "grad_norm": norm}
        told |= {
            f"{name}_update_{update}": means[name]
            for name in (*_BY_UPDATE, "grad_norm")
            if name in means
        }
    metrics = _metrics(every, parts, batch, len(order))
    metrics["grad_norm"] = sum(norms) / len(norms)
    if len(order) > 1:
        metrics |= {"updates": len(order), **told}
    return metrics


def accumulate_gradient(
    policy: Policy,
    batch: Batch,
    training: spec_pb2.TrainingSpec,
    *,
    row_tokens: int,
    cancelled: Callable[[], bool],
    phases: Phases,
    ranks: Ranks | None = None,
) -> dict[str, float]:
    """Adds up the gradient of the batch's loss as one update; applies nothing.

    Returns:
        The step's metrics.

    Raises:
        RequestCancelledError: `cancelled` said so; the gradient is forgotten.
    """
    ranks = ranks or Ranks()
    parts = _parts([batch], training, row_tokens, cancelled, phases, ranks)
    gradients = Gradients(
        policy, parts, training.loss, cancelled=cancelled, phases=phases, ranks=ranks
    )
    return _metrics(gradients.add(0), parts, batch, 1)


def apply_gradient(
    policy: Policy,
    optimizer: Optimizer,
    *,
    learning_rate: float,
    phases: Phases,
    moved: Callable[[], None] = lambda: None,
) -> float:
    """Clips the gradient and moves the weights; returns the norm before clipping.

    `moved` is called in between.

    Raises:
        FailedPreconditionError: the gradient is not finite; the weights are unchanged.
    """
    with phases.measure("optimizer"):
        try:
            norm = optimizer.clip()
            moved()
            optimizer.step(learning_rate)
            policy.masters.publish()
        finally:
            policy.masters.discard_gradients()
    return norm


def _parts(
    batches: Sequence[Batch],
    training: spec_pb2.TrainingSpec,
    row_tokens: int,
    cancelled: Callable[[], bool],
    phases: Phases,
    ranks: Ranks,
) -> list[MiniBatchPart]:
    # All processes pack the same, and are asked alike.
    def ask() -> None:
        go_on(cancelled)

    with phases.measure("pack"):
        return [
            MiniBatchPart.of(
                each, pack(each.samples, row_budget(each, row_tokens, training), ask), ranks
            )
            for each in batches
        ]


def _metrics(
    statistics: Statistics, parts: Sequence[MiniBatchPart], batch: Batch, updates: int
) -> dict[str, float]:
    return {
        **statistics.means(updates),
        # However often the step goes over them.
        "tokens_trained": batch.trained_tokens,
        "tokens_packed": sum(len(row.tokens) for part in parts for row in part.rows),
        "tokens_flat": sum(len(item.sample.context) for item in batch.samples),
        "rows": sum(len(part.rows) for part in parts),
        "trajectories_trained": batch.trajectories,
        "zero_variance_groups": batch.zero_variance_groups,
        **batch.turn_metrics(),
    }
