"""Which groups of a step each update of the optimizer takes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from podium.types.v1 import trajectory_pb2
from podium_trainer.domain.batch import Batch, build_batch
from podium_trainer.domain.mini_batches import ShuffleSeed, mini_batches, passes
from support.tiny_policy import VOCABULARY, group, step_groups, training_spec, trajectory

DRAW = ShuffleSeed(seed=5, step=3)


def parts(
    groups: list[trajectory_pb2.Group], count: int, draw: ShuffleSeed = DRAW, **changes: Any
) -> list[Batch]:
    spec = training_spec(mini_batches=count, **changes)
    return mini_batches(build_batch(groups, spec, VOCABULARY), spec, draw)


def names(found: list[Batch]) -> list[set[str]]:
    return [{batch.group_ids[item.group] for item in batch.samples} for batch in found]


def test_one_part_is_the_batch_itself() -> None:
    spec = training_spec()
    batch = build_batch(step_groups(1), spec, VOCABULARY)
    assert mini_batches(batch, spec, DRAW) == [batch]
    assert mini_batches(batch, spec, DRAW)[0] is batch
    assert passes(1, spec, DRAW) == [0]


def test_each_group_is_in_one_part_and_parts_are_alike_in_size() -> None:
    groups = step_groups(1, groups=7)
    found = names(parts(groups, 3))
    assert set.union(*found) == {each.id for each in groups}
    assert sum(map(len, found)) == 7
    assert sorted(map(len, found)) == [2, 2, 3]


def test_fewer_groups_than_parts_make_fewer_parts() -> None:
    assert len(parts(step_groups(1, groups=2), 5)) == 2
    groups = step_groups(1, groups=3)
    for attempt in groups[0].trajectories:
        attempt.reward = 1
    # A group that does not train takes no part's place.
    assert len(parts(groups, 3)) == 2


def test_the_drawing_follows_from_seed_and_step_and_not_from_the_groups_order() -> None:
    groups = step_groups(1, groups=8)
    drawn = names(parts(groups, 4))
    assert names(parts(groups[::-1], 4)) == drawn
    assert names(parts(groups, 4, ShuffleSeed(5, 4))) != drawn
    assert names(parts(groups, 4, ShuffleSeed(6, 3))) != drawn
    assert names(parts(groups, 4, ShuffleSeed(-1, 3))) != drawn
    # Written down: a step that is taken again by another build must be the same.
    assert drawn == [
        {"s1/g2", "s1/g7"},
        {"s1/g3", "s1/g6"},
        {"s1/g0", "s1/g4"},
        {"s1/g1", "s1/g5"},
    ]


def test_an_epoch_takes_every_part_once_in_an_order_of_its_own() -> None:
    spec = training_spec(mini_batches=8, epochs=3)
    taken = passes(8, spec, DRAW)
    epochs = [taken[start : start + 8] for start in (0, 8, 16)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert all(one != two for one, two in pairwise(epochs))
    assert passes(8, spec, DRAW) == taken
    assert passes(8, spec, ShuffleSeed(5, 4))[8:] != taken[8:]


@pytest.mark.parametrize("kind", ["TOKEN", "SEQUENCE", "CONSTANT"])
def test_a_part_weighs_its_tokens_as_a_batch_of_its_groups_alone(kind: str) -> None:
    """Advantages stay those of the whole step."""
    loss: dict[str, Any] = {
        "aggregation": f"AGGREGATION_KIND_{kind}",
        "advantage": "ADVANTAGE_KIND_BATCH",
    }
    if kind == "CONSTANT":
        loss["aggregation_tokens"] = 9
    groups = [
        group(
            f"g{g}",
            *(
                trajectory(f"g{g}/t{i}", g * i + i, range(1, 9 + g + i), [(3, 2), (6, 2 + g)])
                for i in range(3)
            ),
        )
        for g in range(4)
    ]
    # One attempt of two histories, whose tokens count together.
    more = trajectory("more", None, range(20, 30), [(2, 8)])
    groups[1].trajectories[1].histories.append(more.histories[0])
    whole = build_batch(groups, training_spec(loss=loss), VOCABULARY)
    advantages = {(item.group, item.advantage) for item in whole.samples}
    for part in parts(groups, 2, loss=loss):
        chosen = {part.group_ids[item.group] for item in part.samples}
        alone = build_batch(
            [each for each in groups if each.id in chosen], training_spec(loss=loss), VOCABULARY
        )
        assert part.trajectories == alone.trajectories
        assert [item.weight for item in part.samples] == [item.weight for item in alone.samples]
        numbers = [item.trajectory for item in part.samples]
        assert numbers == [item.trajectory for item in alone.samples]
        assert {(item.group, item.advantage) for item in part.samples} <= advantages
