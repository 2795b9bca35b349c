"""T2, T3: one chunked pass for log-probs and entropies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from podium_trainer.learner.head import logprobs_and_entropy
from torch.utils._python_dispatch import TorchDispatchMode

POSITIONS, VOCABULARY, HIDDEN = 13, 301, 32
SINGLE_TOKEN = 0.01
"""Of the norm of one token's gradient: factors rounded to bfloat16 are off by up to 0.4 %."""


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
    bound: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Every logit at once, in double precision, by autograd."""
    logits = hidden.double() @ weight.double().T
    if bound:
        logits = bound * torch.tanh(logits / bound)
    logits = logits / temperatures[:, None]
    logs = torch.log_softmax(logits, -1)
    return logs[slots, targets], -(logs.exp() * logs).sum(-1)


def evaluated(
    function: object, case: dict[str, torch.Tensor], **options: float
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bound", [2.0, 30.0])
def test_logits_may_be_bounded(bound: float, dtype: torch.dtype) -> None:
    """Gemma's: c tanh(z / c), here of logits of about 6."""
    case = given(dtype)
    case["weight"] = case["weight"].to(dtype)
    found = evaluated(logprobs_and_entropy, case, chunk=4, bound=bound)
    near = {"atol": 2e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    for got, expected in zip(found, evaluated(plain, case, bound=bound), strict=True):
        torch.testing.assert_close(got.double(), expected.double(), **near)
    unbounded = evaluated(logprobs_and_entropy, case, chunk=4)
    assert float((unbounded[0] - found[0]).abs().max()) > 0.1


class Made(TorchDispatchMode):
    """Counts the tensors of so many numbers that operations make."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._numbers = numbers
        self.memory: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.numel() == self._numbers:
            # Kept, so that no other one is made in the same place.
            self._held = [*getattr(self, "_held", []), result]
            self.memory.add(result.untyped_storage().data_ptr())
        return result


def test_a_chunk_makes_its_logits_and_its_probabilities_and_no_more_of_their_size() -> None:
    case = given()
    with Made(POSITIONS * VOCABULARY) as made:
        case["hidden"].requires_grad_()
        logprobs_and_entropy(**case, chunk=POSITIONS)
    assert len(made.memory) == 2


@pytest.mark.parametrize("share", [0.5, 1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("likely", [True, False], ids=["likely", "unlikely"])
def test_a_bfloat16_weight_keeps_the_gradient_of_every_single_token(
    share: float, likely: bool
) -> None:
    """`share` is what the policy leaves to all other tokens than the likeliest."""
    generator = torch.Generator().manual_seed(5)
    # Embeddings have much in common, which is where what is rounded shows most.
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator) + 1
    weight = weight.bfloat16()
    sure = torch.arange(20)
    hidden = torch.empty(len(sure), HIDDEN, dtype=torch.bfloat16)
    temperatures = torch.empty(len(sure))
    for token in sure.tolist():
        hidden[token] = weight[token] - weight.float().mean(0).bfloat16()
        temperatures[token] = _temperature(weight, hidden[token], token, share)
    targets = sure if likely else sure + 100
    case = {
        "weight": weight,
        "temperatures": temperatures,
        "slots": torch.arange(len(sure)),
        "targets": targets,
    }
    for token in range(len(sure)):
        found, expected = (
            _one_gradient(function, case, hidden, token)
            for function in (logprobs_and_entropy, plain)
        )
        assert (found - expected).norm() <= SINGLE_TOKEN * expected.norm()


def _temperature(weight: torch.Tensor, hidden: torch.Tensor, token: int, share: float) -> float:
    """The one at which tokens other than `token` have `share` of the probability."""
    logits = weight.double() @ hidden.double()
    low, high = 1e-2, 1e3
    for _ in range(60):
        middle = (low * high) ** 0.5
        others = 1 - torch.softmax(logits / middle, -1)[token]
        low, high = (low, middle) if others > share else (middle, high)
    return low


def _one_gradient(
    function: Any, case: dict[str, torch.Tensor], hidden: torch.Tensor, token: int
) -> torch.Tensor:
    """Of one token's log-prob by its state, in double precision as far as there is any."""
    states = hidden.float().requires_grad_()
    logprobs, _ = function(**case, hidden=states)
    (found,) = torch.autograd.grad(logprobs[token], states)
    return found[token].double()


@pytest.mark.parametrize("chunk", [4, 64])
def test_float32_is_computed_by_these_very_operations(chunk: int) -> None:
    """To the last bit, which is what a run that is repeated compares."""
    case = given()
    hidden, weight, slots, targets = (
        case[name] for name in ("hidden", "weight", "slots", "targets")
    )
    inverse = 1 / case["temperatures"]
    factors = torch.linspace(-1, 2, len(slots))
    found = evaluated(logprobs_and_entropy, case, chunk=chunk)
    logprobs, entropy, expected = [], [], []
    for start in range(0, POSITIONS, chunk):
        logits = (hidden[start : start + chunk] @ weight.T) * inverse[start : start + chunk, None]
        lse = torch.logsumexp(logits, -1)
        own = (slots >= start) & (slots < start + chunk)
        logprobs.append(logits[slots[own] - start, targets[own]] - lse[slots[own] - start])
        probabilities = torch.exp(logits - lse[:, None])
        entropy.append(lse - (probabilities * logits).sum(-1))
        expected.append(probabilities @ weight)
    total = torch.zeros(POSITIONS).index_add_(0, slots, factors)
    by_hidden = -total[:, None] * torch.cat(expected)
    by_hidden.index_add_(0, slots, factors[:, None] * weight[targets])
    by_hidden *= inverse[:, None]
    assert torch.equal(found[0], torch.cat(logprobs))
    assert torch.equal(found[1], torch.cat(entropy))
    assert torch.equal(found[2], by_hidden)


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
