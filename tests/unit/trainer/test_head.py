"""T2, T3: one chunked pass for log-probs and entropies."""

from __future__ import annotations

import pytest
import torch
from podium_trainer.learner.head import logprobs_and_entropy

POSITIONS, VOCABULARY, HIDDEN = 13, 301, 32


def given(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    slots = torch.tensor([0, 0, 1, 3, 3, 3, 7, 8, 12, 12])
    return {
        "hidden": torch.randn(POSITIONS, HIDDEN, generator=generator).to(dtype),
        "weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "temperatures": torch.tensor([1.0, 0.7, 1.3] * 5)[:POSITIONS],
        "slots": slots,
        "targets": torch.randint(VOCABULARY, slots.shape, generator=generator),
    }


def plain(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    temperatures: torch.Tensor,
    slots: torch.Tensor,
    targets: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every logit at once, in double precision, by autograd."""
    logits = hidden.double() @ weight.double().T / temperatures[:, None]
    logs = torch.log_softmax(logits, -1)
    return logs[slots, targets], -(logs.exp() * logs).sum(-1)


def evaluated(
    function: object, case: dict[str, torch.Tensor], **options: int
) -> tuple[torch.Tensor, ...]:
    hidden = case["hidden"].clone().requires_grad_()
    weight = case["weight"].clone().requires_grad_()
    logprobs, entropy = function(**{**case, "hidden": hidden, "weight": weight}, **options)  # type: ignore[operator]
    factors = torch.linspace(-1, 2, len(logprobs))
    gradients = torch.autograd.grad((logprobs * factors).sum(), [hidden, weight])
    return logprobs.detach(), entropy.detach(), *gradients


@pytest.mark.parametrize("chunk", [1, 4, 64, 4096])
def test_t2_t3_any_chunk_equals_the_plain_head(chunk: int) -> None:
    found = evaluated(logprobs_and_entropy, given(), chunk=chunk)
    for got, expected in zip(found, evaluated(plain, given()), strict=True):
        torch.testing.assert_close(got.double(), expected.double(), atol=2e-5, rtol=1e-5)


def test_t2_bfloat16_states_are_added_up_in_float32() -> None:
    case = given(torch.bfloat16)
    found = logprobs_and_entropy(**case, chunk=4)
    for got, expected in zip(found, plain(**case), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), expected, atol=2e-5, rtol=1e-5)


def test_t2_a_bfloat16_weight_is_multiplied_as_it_is() -> None:
    case = given(torch.bfloat16)
    low = {**case, "weight": case["weight"].bfloat16()}
    for got, expected in zip(
        evaluated(logprobs_and_entropy, low, chunk=4), evaluated(plain, low), strict=True
    ):
        # Gradients come back in the type of what they are of.
        torch.testing.assert_close(got.double(), expected.double(), atol=2e-2, rtol=2e-2)


def test_t3_a_temperature_is_its_positions_own() -> None:
    case = given()
    warm = {**case, "temperatures": torch.ones(POSITIONS)}
    scaled = {**warm, "hidden": case["hidden"] / case["temperatures"][:, None]}
    torch.testing.assert_close(logprobs_and_entropy(**case)[0], logprobs_and_entropy(**scaled)[0])


def test_a_frozen_weight_gets_no_gradient_and_changes_nothing_for_the_states() -> None:
    case = given()
    hidden = case["hidden"].clone().requires_grad_()
    logprobs, _ = logprobs_and_entropy(**{**case, "hidden": hidden})
    (alone,) = torch.autograd.grad((logprobs * torch.linspace(-1, 2, 10)).sum(), [hidden])
    assert torch.equal(alone, evaluated(logprobs_and_entropy, case)[2])
