"""ART's helpers for files and epochs: rows in batches, with a learning rate for each step.

await podium.train_sft_from_file(model, "train.jsonl", epochs=3, peak_lr=2e-4)

for chunk in podium.create_sft_dataset_iterator(trajectories, epochs=3):
    await model.train_sft(chunk.trajectories, chunk.config)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.scenarios.batches import iterate_dataset
from podium.training.backend import TrainResult
from podium.training.sft.attempts import attempt_of
from podium.training.sft.files import File, read_rows
from podium.training.step_config import TrainSFTConfig
from podium.training.trajectories import Trajectory

Schedule = Literal["cosine", "linear", "constant"]
T = TypeVar("T")

_SCHEDULES = ("cosine", "linear", "constant")


class LearnsRows(Protocol):
    """What is asked of a `TrainableModel`."""

    async def train_sft(
        self,
        rows: Iterable[Trajectory],
        config: TrainSFTConfig | None = None,
        *,
        progress: bool = True,
    ) -> TrainResult:
        """See `TrainableModel.train_sft`."""


class SFTChunk(NamedTuple):
    """What one call of `train_sft` takes."""

    trajectories: list[Trajectory]
    """In the order in which they train."""
    config: TrainSFTConfig
    """With a rate for each of its steps."""
    step: int
    """Of its first batch, over all epochs, from 0."""
    epoch: int
    """From 0."""
    epoch_step: int
    """Of its first batch within the epoch, from 0."""


def create_lr_schedule(
    total_steps: int,
    peak_lr: float,
    method: Schedule = "linear",
    warmup_steps: int = 0,
    min_lr: float = 0.0,
) -> list[float]:
    """The learning rate of each step: linear up to `peak_lr` over the warm-up, then as `method`.

    As ART's of this name, but that the decay ends at `min_lr` after the last step, and not with
    it: a step whose rate is 0 would learn nothing.

    Args:
        total_steps: how many; of none there are no rates.
        peak_lr: of the first step after the warm-up.
        method: how it falls from there to `min_lr`, or that it does not.
        warmup_steps: of them those that rise.
        min_lr: where it falls to, and where the warm-up rises from.

    Raises:
        InvalidArgumentError: `method` is no schedule, or the warm-up is negative.
    """
    if method not in _SCHEDULES:
        text = f"got {method!r}; allowed are {', '.join(_SCHEDULES)}"
        raise InvalidArgumentError(violations=[Violation("schedule_type", text)])
    _at_least("warmup_steps", warmup_steps, 0)
    found = []
    for step in range(total_steps):
        if step < warmup_steps:
            share = (step + 1) / warmup_steps
        elif method == "constant":
            share = 1.0
        else:
            done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
            share = 1 - done if method == "linear" else (1 + math.cos(math.pi * done)) / 2
        found.append(min_lr + (peak_lr - min_lr) * share)
    return found


def create_sft_dataset_iterator(
    trajectories: Sequence[Trajectory],
    chunk_size: int = 10,
    epochs: int = 1,
    batch_size: int = 2,
    peak_lr: float = 2e-4,
    schedule_type: Schedule = "linear",
    warmup_ratio: float = 0.1,
    shuffle: bool = True,
    seed: int = 42,
    initial_step: int = 0,
) -> Iterator[SFTChunk]:
    """Epochs over attempts, as calls of `train_sft` that have one schedule among them.

    As ART's of this name. The order is one of seed, epoch and place alone.

    Args:
        trajectories: what to learn from.
        chunk_size: batches of one call.
        epochs: passes over all.
        batch_size: attempts of a step.
        peak_lr, schedule_type: see `create_lr_schedule`.
        warmup_ratio: share of all steps in which the rate rises, from 0 to 1.
        shuffle: whether each epoch has an order of its own.
        seed: of these orders.
        initial_step: how many batches were taken before.

    Raises:
        InvalidArgumentError: a number below its least, or no schedule.
    """
    for name, value, least in (
        ("chunk_size", chunk_size, 1),
        ("epochs", epochs, 1),
        ("batch_size", batch_size, 1),
        ("initial_step", initial_step, 0),
    ):
        _at_least(name, value, least)
    per_epoch = -(-len(trajectories) // batch_size)
    rates = _rates(per_epoch * epochs, peak_lr, schedule_type, warmup_ratio)
    # Checked when it is called, and not when the first is asked for.
    return _chunks(
        trajectories, chunk_size, epochs, batch_size, rates, seed if shuffle else None, initial_step
    )


def _chunks(
    trajectories: Sequence[Trajectory],
    chunk_size: int,
    epochs: int,
    batch_size: int,
    rates: list[float],
    seed: int | None,
    initial_step: int,
) -> Iterator[SFTChunk]:
    per_epoch = -(-len(trajectories) // batch_size)
    for epoch in range(epochs if trajectories else 0):
        order = _order(trajectories, seed, epoch)
        for begin in range(0, per_epoch, chunk_size):
            end = min(begin + chunk_size, per_epoch)
            begin = max(begin, initial_step - epoch * per_epoch)
            if begin >= end:
                continue
            step = epoch * per_epoch + begin
            config = TrainSFTConfig(rates[step : step + end - begin], batch_size)
            taken = order[begin * batch_size : end * batch_size]
            yield SFTChunk(taken, config, step, epoch, begin)


def iterate_file(
    file_path: File, epochs: int = 1, *, shuffle: bool = True, seed: int = 42, initial_skip: int = 0
) -> Iterator[Trajectory]:
    """The rows of a file as attempts, over epochs, each in an order of its own.

    Args:
        file_path: JSONL or Parquet, as `train_sft` takes it. All of it is checked first.
        epochs: passes over it.
        shuffle: whether each epoch has an order of its own.
        seed: of these orders.
        initial_skip: rows that are left out at the beginning, as taken before.

    Raises:
        InvalidArgumentError: every row that is wrong, by file, number and field.
    """
    _at_least("epochs", epochs, 1)
    _at_least("initial_skip", initial_skip, 0)
    found = [attempt_of(row) for row in read_rows(file_path, name="file_path").rows]
    every = (
        each for epoch in range(epochs) for each in _order(found, seed if shuffle else None, epoch)
    )
    return (each for number, each in enumerate(every) if number >= initial_skip)


async def train_sft_from_file(
    model: LearnsRows,
    file_path: File,
    epochs: int = 1,
    batch_size: int = 2,
    peak_lr: float = 2e-4,
    schedule_type: Schedule = "linear",
    warmup_ratio: float = 0.1,
    initial_step: int = 0,
    final_step: int | None = None,
    *,
    assistant_turns: Literal["all", "last"] = "all",
    progress: bool = True,
) -> TrainResult:
    """Fine-tunes a registered model on a file; returns after the last step.

    As ART's of this name. The model may train by `train` before and after.

    Args:
        model: where it trains.
        file_path: JSONL or Parquet, as `TrainableModel.train_sft` takes it.
        epochs: passes over it, each in an order of its own.
        batch_size: rows of a step; the last one may have fewer.
        peak_lr, schedule_type: see `create_lr_schedule`.
        warmup_ratio: share of all steps in which the rate rises, from 0 to 1.
        initial_step: how many of the file's steps were taken before.
        final_step: with how many to stop, for a look in between; None for all. The schedule is
            that of all.
        assistant_turns: see `TrainSFTConfig`.
        progress: whether a bar shows how far it is.

    Raises:
        InvalidArgumentError: every row that cannot train, a number below its least, or no step is
            left to take.
        FailedPreconditionError, UnavailableError: as `TrainableModel.train_sft`.
    """
    _at_least("batch_size", batch_size, 1)
    _at_least("initial_step", initial_step, 0)
    rows = list(iterate_file(file_path, epochs))
    total = -(-len(rows) // batch_size)
    rates = _rates(total, peak_lr, schedule_type, warmup_ratio)[:final_step]
    if initial_step >= len(rates):
        text = f"got {initial_step}; of the file's {total} steps it leaves none"
        raise InvalidArgumentError(violations=[Violation("initial_step", text)])
    taken = rows[initial_step * batch_size : len(rates) * batch_size]
    config = TrainSFTConfig(rates[initial_step:], batch_size, assistant_turns)
    return await model.train_sft(taken, config, progress=progress)


def _rates(total: int, peak_lr: float, method: Schedule, warmup_ratio: float) -> list[float]:
    if not 0 <= warmup_ratio <= 1:
        text = f"got {warmup_ratio!r}; allowed are numbers from 0 to 1"
        raise InvalidArgumentError(violations=[Violation("warmup_ratio", text)])
    return create_lr_schedule(total, peak_lr, method, int(total * warmup_ratio))


def _order(items: Sequence[T], seed: int | None, epoch: int) -> list[T]:
    if seed is None or not items:
        return list(items)
    batches = iterate_dataset(items, len(items), epoch + 1, epoch, seed=seed)
    return next(batches).items


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        text = f"got {value!r}; allowed are whole numbers from {least} up"
        raise InvalidArgumentError(violations=[Violation(name, text)])
