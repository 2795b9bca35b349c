"""What the trainer's arithmetic says of its shapes is checked wherever tests call it.

torch broadcasts: a vector of another length, or a column for a row, is often no error but another
loss. pyproject.toml names the modules whose annotations are held.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from podium_trainer.domain.packing import Row, build_row
from podium_trainer.domain.samples import Sample
from podium_trainer.learner.head import logprobs_and_entropy
from podium_trainer.learner.objectives import Tokens, clipped, kl
from support.tiny_policy import sample, weighted

K = 4


def tokens(**changes: torch.Tensor) -> Tokens:
    given: dict[str, Any] = {
        "logprobs": torch.zeros(K),
        "sampler": torch.zeros(K),
        "advantages": torch.ones(K),
        "trajectories": torch.arange(K),
    }
    return Tokens(**{**given, **changes})


@pytest.mark.parametrize(
    "wrong",
    [
        {"advantages": torch.ones(1)},
        {"sampler": torch.zeros(K, 1)},
        {"trajectories": torch.zeros(K)},
        {"reference": torch.zeros(K + 1)},
    ],
)
def test_tokens_are_of_one_length_and_their_own_type(wrong: dict[str, torch.Tensor]) -> None:
    tokens()
    with pytest.raises(TypeCheckError, match=next(iter(wrong))):
        tokens(**wrong)


def test_a_column_is_not_broadcast_into_a_loss() -> None:
    row, column = torch.ones(K), torch.ones(K, 1)
    clipped.loss(row, row, 0.2, 0.2)
    with pytest.raises(TypeCheckError):
        clipped.loss(row, column, 0.2, 0.2)
    with pytest.raises(TypeCheckError):
        kl.estimate(row, column, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperatures": torch.ones(1)},
        {"weight": torch.ones(8, 3)},
        {"targets": torch.zeros(2, dtype=torch.int64)},
        {"slots": torch.zeros(3)},
    ],
)
def test_the_head_takes_a_temperature_a_position_and_a_target_a_slot(
    wrong: dict[str, torch.Tensor],
) -> None:
    given = {
        "hidden": torch.ones(2, 5),
        "weight": torch.ones(8, 5),
        "temperatures": torch.ones(2),
        "slots": torch.tensor([0, 0, 1]),
        "targets": torch.tensor([1, 2, 3]),
    }
    logprobs_and_entropy(**given)
    with pytest.raises(TypeCheckError, match=next(iter(wrong))):
        logprobs_and_entropy(**{**given, **wrong})


def test_every_array_of_a_row_has_the_length_that_it_says() -> None:
    items: list[Sample] = [sample([1, 2, 3, 4], [2, 3]), sample([1, 2, 9, 9], [3], seed=1)]
    row = build_row(weighted(items))
    for field in fields(Row):
        with pytest.raises(TypeCheckError, match=field.name):
            replace(row, **{field.name: np.append(getattr(row, field.name), 0)})
