"""Epochs and batches, as ART's `iterate_dataset` has them."""

from __future__ import annotations

import pytest
from podium.environments.scenarios import batches, iterate_dataset


def test_each_epoch_has_everything_once_in_an_order_of_its_own() -> None:
    found = list(iterate_dataset(range(10), groups_per_step=4, num_epochs=3))
    assert [(b.step, b.epoch, b.epoch_step, len(b.items)) for b in found] == [
        (step, step // 3, step % 3, (4, 4, 2)[step % 3]) for step in range(9)
    ]
    orders = [[n for b in found if b.epoch == epoch for n in b.items] for epoch in range(3)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_a_run_goes_on_where_it_stopped() -> None:
    whole = list(iterate_dataset("abcdefg", 3, 2, seed=5))
    for step in range(len(whole) + 1):
        assert list(iterate_dataset("abcdefg", 3, 2, step, seed=5)) == whole[step:]
    assert list(iterate_dataset("abcdefg", 3, 2, seed=6)) != whole


def test_an_epochs_order_is_made_once_for_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of a run asks for its own batch alone; of a million rows an order takes seconds."""
    asked = []

    def rank(seed: int, epoch: int, place: int) -> bytes:
        asked.append(place)
        return bytes([place])

    monkeypatch.setattr(batches, "_rank", rank)
    batches._order.cache_clear()
    for step in range(8):
        next(iterate_dataset(range(16), 2, 1, step, seed=3))
    batches._order.cache_clear()
    assert sorted(asked) == list(range(16))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (([], 1), "empty"),
        (([1], 0), "groups_per_step: got 0"),
        (([1], 1, 0), "num_epochs: got 0"),
        (([1], 1, 1, -1), "initial_step: got -1"),
    ],
)
def test_nonsense_is_refused(arguments: tuple[object, ...], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        list(iterate_dataset(*arguments))  # type: ignore[arg-type]
