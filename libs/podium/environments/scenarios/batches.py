"""Epochs over scenarios in batches, for training that a client drives."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class DatasetBatch(Generic[T]):
    """The scenarios of one training step."""

    items: list[T]
    step: int
    """Over all epochs, from 0."""
    epoch: int
    """From 0."""
    epoch_step: int
    """Within the epoch, from 0."""


def iterate_dataset(
    dataset: Sequence[T],
    groups_per_step: int = 1,
    num_epochs: int = 1,
    initial_step: int = 0,
    *,
    seed: int = 0,
) -> Iterator[DatasetBatch[T]]:
    """Batches of a data set, shuffled anew each epoch.

    As ART's function of this name: an epoch's last batch may be smaller, and `initial_step` goes
    on where a run stopped. The order is one of seed, epoch and place alone, the same everywhere.

    Raises:
        ValueError: an empty data set, or a number below its least.
    """
    if not dataset:
        raise ValueError("the data set is empty")
    for name, value, least in (
        ("groups_per_step", groups_per_step, 1),
        ("num_epochs", num_epochs, 1),
        ("initial_step", initial_step, 0),
    ):
        if value < least:
            raise ValueError(f"{name}: got {value}; allowed are whole numbers from {least} up")
    per_epoch = -(-len(dataset) // groups_per_step)
    for epoch in range(initial_step // per_epoch, num_epochs):
        order = _order(len(dataset), seed, epoch)
        skipped = max(0, initial_step - epoch * per_epoch)
        for epoch_step in range(skipped, per_epoch):
            chosen = order[epoch_step * groups_per_step : (epoch_step + 1) * groups_per_step]
            yield DatasetBatch(
                [dataset[place] for place in chosen],
                epoch * per_epoch + epoch_step,
                epoch,
                epoch_step,
            )


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> Sequence[int]:
    """Of an epoch. Kept, for a run asks for it anew each step; of a million rows it takes long."""
    return array("q", sorted(range(count), key=lambda place: _rank(seed, epoch, place)))


def _rank(seed: int, epoch: int, place: int) -> bytes:
    # A hash and not `random.shuffle`, whose order may differ between Python versions.
    return hashlib.sha256(f"{seed}/{epoch}/{place}".encode()).digest()
