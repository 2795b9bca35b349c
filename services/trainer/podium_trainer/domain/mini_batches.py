"""The parts of a step's batch that the optimizer takes one after the other.

What is drawn follows from the job's seed, the step and the groups' ids: not from the order in
which the groups came, nor from what was drawn before. A step that is taken again, by whatever
number of processes, is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from podium.types.v1 import spec_pb2

from podium_trainer.domain.aggregation import token_weight
from podium_trainer.domain.batch import Batch


@dataclass(frozen=True)
class ShuffleSeed:
    """What a step's drawing follows from."""

    seed: int
    step: int

    def shuffled(self, names: Sequence[str], what: str = "") -> list[int]:
        """The places of `names`, drawn; the same for the same names in any order."""

        def key(place: int) -> bytes:
            text = f"{self.seed}/{self.step}/{what}/{names[place]}"
            return hashlib.sha256(text.encode()).digest()

        return sorted(range(len(names)), key=key)


def mini_batches(batch: Batch, training: spec_pb2.TrainingSpec, draw: ShuffleSeed) -> list[Batch]:
    """The batch in `training.mini_batches` parts, of whole groups, within one as many in each.

    Fewer when fewer groups train. Advantages are of the whole step; each part's weights are of
    itself alone. One part is the batch itself.
    """
    groups = sorted({item.group for item in batch.samples})
    count = min(max(1, training.mini_batches), len(groups))
    if count <= 1:
        return [batch]
    order = draw.shuffled([batch.group_ids[group] for group in groups])
    part_of = {groups[place]: i * count // len(order) for i, place in enumerate(order)}
    return [
        _part(batch, {group for group, found in part_of.items() if found == number}, training.loss)
        for number in range(count)
    ]


def passes(count: int, training: spec_pb2.TrainingSpec, draw: ShuffleSeed) -> list[int]:
    """Which of `count` parts each update of the step takes: every one once an epoch."""
    names = [str(number) for number in range(count)]
    taken = list(range(count))
    for epoch in range(1, training.epochs):
        taken += draw.shuffled(names, f"epoch {epoch}")
    return taken


def _part(batch: Batch, groups: set[int], loss: spec_pb2.LossSpec) -> Batch:
    samples = [item for item in batch.samples if item.group in groups]
    numbers = {
        found: number for number, found in enumerate(sorted({s.trajectory for s in samples}))
    }
    own = batch.tokens_by_trajectory()
    tokens = sum(len(item.sample.targets) for item in samples)
    return Batch(
        samples=[
            replace(
                item,
                trajectory=numbers[item.trajectory],
                weight=token_weight(
                    loss,
                    trajectories=len(numbers),
                    tokens=tokens,
                    own=int(own[item.trajectory]),
                ),
            )
            for item in samples
        ],
        trajectories=len(numbers),
        group_ids=batch.group_ids,
    )
