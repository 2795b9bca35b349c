"""The head over frozen weights, in which a likely token is kept apart from the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from podium_trainer.learner.frozen_head import frozen_logprobs_and_entropy
from podium_trainer.learner.head import logprobs_and_entropy
from podium_trainer.learner.products import has_bfloat16
from torch import Tensor

POSITIONS, VOCABULARY, HIDDEN = 83, 301, 32
ROUNDS = [
    False,
    pytest.param(
        True,
        marks=pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no bfloat16 products"),
    ),
]


def given(*, sure: bool) -> dict[str, Any]:
    """Slots with several tokens, with one, and without; `sure` of the token or far from it."""
    generator = torch.Generator().manual_seed(3)
    slots = torch.sort(torch.randint(POSITIONS, (130,), generator=generator))[0]
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator).bfloat16().float()
    targets = torch.randint(VOCABULARY, slots.shape, generator=generator)
    hidden = torch.randn(POSITIONS, HIDDEN, generator=generator)
    if sure:
        # The last token of a slot has all but a hundredth to a millionth, and the others a share.
        hidden[slots] = weight[targets] * torch.linspace(0.28, 0.6, len(slots))[:, None]
    return {
        "hidden": hidden,
        "weight": weight,
        "temperatures": torch.tensor([1.0, 0.7, 1.3] * 28)[:POSITIONS],
        "slots": slots,
        "targets": targets,
    }


def exact(
    hidden: Tensor, weight: Tensor, temperatures: Tensor, slots: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Every logit at once, in double precision, by autograd."""
    logits = hidden.double() @ weight.double().T / temperatures[:, None]
    logs = torch.log_softmax(logits, -1)
    return logs[slots, targets], -(logs.exp() * logs).sum(-1)


def gradients(function: Any, case: dict[str, Any], token: int | None = None) -> Tensor:
    hidden = case["hidden"].clone().requires_grad_()
    logprobs, _ = function(**{**case, "hidden": hidden})
    loss = logprobs.sum() if token is None else logprobs[token]
    (found,) = torch.autograd.grad(loss, hidden)
    return found.double()


def ours(rounds: bool, **options: int) -> Any:
    def function(**case: Tensor) -> tuple[Tensor, Tensor]:
        rounded = case["weight"].bfloat16() if rounds else None
        return frozen_logprobs_and_entropy(**case, rounded=rounded, **options)

    return function


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("chunk", [1, 16, 48, 4096])
def test_any_chunk_equals_the_plain_head(rounds: bool, sure: bool, chunk: int) -> None:
    case = given(sure=sure)
    for got, expected in zip(ours(rounds, chunk=chunk)(**case), exact(**case), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=1e-5)
    expected = gradients(exact, case)
    off = (gradients(ours(rounds, chunk=chunk), case) - expected).norm() / expected.norm()
    assert off < (3e-3 if rounds else 2e-6)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_token_that_the_policy_is_sure_of_keeps_its_gradient(rounds: bool) -> None:
    """Each by itself, in share of its own norm, down to a millionth of what another token has."""
    case = given(sure=True)
    logprobs, _ = exact(**case)
    # One a slot, the one that all is given to.
    tokens = [k for k in range(len(logprobs)) if -1e-2 < logprobs[k] < -1e-9]
    assert len(tokens) > 20
    worst = 0.0
    for token in tokens:
        expected = gradients(exact, case, token)
        found = gradients(ours(rounds), case, token)
        worst = max(worst, float((found - expected).norm() / expected.norm()))
    assert worst < 1e-2


def test_nothing_is_made_for_a_gradient_that_nobody_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = given(sure=False)
    made = []
    from podium_trainer.learner import frozen_head

    multiply = frozen_head.multiply
    monkeypatch.setattr(
        frozen_head, "multiply", lambda one, two: made.append(one.shape) or multiply(one, two)
    )
    plain, entropy = ours(rounds=False)(**case)
    assert made == [(POSITIONS, HIDDEN)]
    for got, expected in zip((plain, entropy), logprobs_and_entropy(**case), strict=True):
        torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-5)
