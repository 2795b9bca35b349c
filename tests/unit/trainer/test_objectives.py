"""The loss of a token: golden values, hand-computed ones, and what must stay finite."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from podium.types.v1 import spec_pb2
from podium_trainer.learner.objectives import BatchValues, TokenLosses, Tokens, kl, token_losses
from support.golden import golden
from support.tiny_policy import training_spec

ART = golden("art_losses.json")


def loss_spec(**changes: Any) -> spec_pb2.LossSpec:
    return training_spec(loss=changes).loss


def tokens(
    logprobs: list[float] | torch.Tensor,
    sampler: list[float],
    advantages: list[float],
    *,
    reference: list[float] | None = None,
    trajectories: list[int] | None = None,
) -> Tokens:
    now = torch.as_tensor(logprobs, dtype=torch.float32).clone().requires_grad_()
    return Tokens(
        logprobs=now,
        sampler=torch.tensor(sampler),
        advantages=torch.tensor(advantages, dtype=torch.float32),
        trajectories=torch.tensor(trajectories or list(range(len(sampler)))),
        reference=None if reference is None else torch.tensor(reference),
    )


def mean_and_gradient(given: Tokens, losses: TokenLosses) -> tuple[float, list[float]]:
    mean = losses.total.mean()
    (gradient,) = torch.autograd.grad(mean, given.logprobs)
    return float(mean.detach()), gradient.tolist()


def art_tokens(name: str) -> Tokens:
    inputs = ART["inputs"]
    # ART shifts by one: position i scores token i + 1, and the trained tokens are 3 to 6.
    trained = slice(2, 6)
    old = [math.nan if name == "nan_old" else value for value in inputs["old_logprobs"][3:7]]
    return tokens(
        inputs["new_logprobs"][trained],
        old,
        [float(value) for value in inputs["advantages"][3:7]],
        reference=inputs["reference_logprobs"][trained],
        trajectories=inputs["group_ids"][3:7],
    )


ART_CASES: dict[str, dict[str, Any]] = {
    "cispo_default": {"objective": "OBJECTIVE_CISPO"},
    "ppo_default": {"objective": "OBJECTIVE_CLIPPED", "epsilon": 0.2, "epsilon_high": 0.2},
    "cispo_eps0.2_0.28": {"objective": "OBJECTIVE_CISPO", "epsilon": 0.2, "epsilon_high": 0.28},
    "cispo_seq": {"objective": "OBJECTIVE_CISPO", "ratio_level": "RATIO_LEVEL_SEQUENCE"},
    "cispo_avg": {"objective": "OBJECTIVE_CISPO", "ratio_level": "RATIO_LEVEL_AVERAGE"},
    "kl_0.1": {
        "objective": "OBJECTIVE_CISPO",
        "kl_coefficient": 0.1,
        "kl_estimator": "KL_ESTIMATOR_K1",
        "kl_placement": "KL_PLACEMENT_ADVANTAGE",
    },
    "kl_0.1_noref": {"objective": "OBJECTIVE_CISPO"},
    # ART multiplies by the ratio of new to old a second time. A job is refused it; the
    # function has no opinion.
    "tis_2.0": {"objective": "OBJECTIVE_CISPO", "importance_cap": 2.0},
    "nan_old": {"objective": "OBJECTIVE_CISPO"},
}


def test_every_golden_loss_of_art_has_a_case() -> None:
    assert set(ART_CASES) == set(ART["loss"]) - {"ratios"}


@pytest.mark.parametrize("name", ART_CASES)
def test_golden_art_loss_and_gradient(name: str) -> None:
    given = art_tokens(name)
    spec = loss_spec(**ART_CASES[name])
    values = BatchValues()
    if spec.kl_placement == spec_pb2.KL_PLACEMENT_ADVANTAGE:
        assert given.reference is not None
        values = BatchValues(kl_mean=float((given.logprobs - given.reference).detach().mean()))
    value, gradient = mean_and_gradient(given, token_losses(given, spec, values))
    expected = ART["loss"][name]
    assert value == pytest.approx(expected["loss"], abs=1e-5)
    # The file's gradient is of the row's mean, at the positions that score tokens 3 to 6.
    assert gradient == pytest.approx(expected["grad"][2:6], abs=1e-5)


def test_golden_ratios_of_art() -> None:
    losses = token_losses(art_tokens("cispo_default"), loss_spec(objective="OBJECTIVE_CISPO"))
    assert losses.ratio.tolist() == pytest.approx(ART["loss"]["ratios"], rel=1e-5)


def test_the_geometric_average_of_art() -> None:
    given = art_tokens("geometric")
    spec = loss_spec(objective="OBJECTIVE_CISPO", ratio_level="RATIO_LEVEL_GEOMETRIC_AVERAGE")
    loss = token_losses(given, spec).total.mean().detach()
    assert float(loss) == pytest.approx(0.08355, abs=1e-5)


def test_s1_golden_loss_of_the_tutorial() -> None:
    given = tokens([-1, -0.5, -2], [-1, -0.5, -2], [1, 0, -1], reference=[-1.1, -0.4, -1.5])
    spec = loss_spec(
        objective="OBJECTIVE_REINFORCE", kl_coefficient=0.1, kl_estimator="KL_ESTIMATOR_K1"
    )
    losses = token_losses(given, spec)
    expected = golden("trainer_tutorial.json")["grpo_seed_loss"]
    assert losses.kl is not None
    assert float(losses.policy.mean()) == pytest.approx(expected["policy"], abs=1e-5)
    assert float(0.1 * losses.kl.mean()) == pytest.approx(expected["kl"], abs=1e-5)
    assert float(losses.total.mean()) == pytest.approx(expected["total"], abs=1e-5)


OBJECTIVES = [
    {"objective": "OBJECTIVE_CLIPPED"},
    {"objective": "OBJECTIVE_CLIPPED", "old_policy": "OLD_POLICY_TRAINER", "importance_cap": 2.0},
    {"objective": "OBJECTIVE_CISPO"},
    {"objective": "OBJECTIVE_CISPO", "ratio_level": "RATIO_LEVEL_AVERAGE"},
    {"objective": "OBJECTIVE_GSPO"},
    {"objective": "OBJECTIVE_REINFORCE", "importance_cap": 5.0},
    {"objective": "OBJECTIVE_SUPERVISED"},
]


def ident(case: dict[str, Any]) -> str:
    return "-".join(str(value).rpartition("_")[2].lower() for value in case.values())


@pytest.mark.parametrize("case", OBJECTIVES, ids=ident)
def test_t5_extreme_ratios_are_finite(case: dict[str, Any]) -> None:
    for estimator, off in product(["K1", "K2", "K3", "K3_PLUS"], [100.0, -100.0]):
        given = tokens(
            [-1.0, -101.0, -1.0, -101.0],
            [-1.0 - off, -101.0 - off, -1.0 - off, -1.0],
            [1.0, -1.0, -1.0, 1.0],
            reference=[-1.0 - off, -101.0 - off, -1.0, -1.0 - off],
            trajectories=[0, 0, 1, 1],
        )
        spec = loss_spec(kl_coefficient=0.1, kl_estimator=f"KL_ESTIMATOR_{estimator}", **case)
        value, gradient = mean_and_gradient(given, token_losses(given, spec))
        assert math.isfinite(value), (estimator, off)
        assert all(map(math.isfinite, gradient)), (estimator, off)


@pytest.mark.parametrize("case", OBJECTIVES, ids=ident)
def test_t6_a_missing_logprob_is_a_ratio_of_one_and_marked(case: dict[str, Any]) -> None:
    known = tokens([-1.0, -2.0], [-1.0, -2.0], [1.0, -0.5])
    missing = tokens([-1.0, -2.0], [math.nan, math.nan], [1.0, -0.5])
    spec = loss_spec(**case)
    of_known, of_missing = token_losses(known, spec), token_losses(missing, spec)
    assert mean_and_gradient(missing, of_missing) == mean_and_gradient(known, of_known)
    assert of_missing.missing.tolist() == [True, True]
    assert of_known.missing.tolist() == [False, False]


def enumerate_kl(estimator: int) -> tuple[float, torch.Tensor, float, torch.Tensor]:
    """Value and gradient of the estimator in expectation, and the true KL's, by enumeration."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], requires_grad=True)
    q = torch.log_softmax(torch.tensor([-0.2, 0.4, 0.5, -1.0]), -1)
    p = torch.log_softmax(logits, -1)
    true = (p.exp() * (p - q)).sum()
    (true_gradient,) = torch.autograd.grad(true, logits, retain_graph=True)
    estimates = kl.estimate(p, q, estimator)  # type: ignore[arg-type]
    expected = (p.detach().exp() * estimates).sum()
    (gradient,) = torch.autograd.grad(expected, logits)
    return float(expected), gradient, float(true), true_gradient


@pytest.mark.parametrize("name", ["K1", "K3", "K3_PLUS"])
def test_t7_the_expected_value_is_the_kl(name: str) -> None:
    value, _, true, _ = enumerate_kl(spec_pb2.KlEstimator.Value(f"KL_ESTIMATOR_{name}"))
    assert value == pytest.approx(true, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "equal"), [("K1", False), ("K2", True), ("K3", False), ("K3_PLUS", True)]
)
def test_t7_the_expected_gradient_is_that_of_the_kl_for_k2_and_k3_plus(
    name: str, equal: bool
) -> None:
    _, gradient, _, true = enumerate_kl(spec_pb2.KlEstimator.Value(f"KL_ESTIMATOR_{name}"))
    assert torch.allclose(gradient, true, atol=1e-6) == equal


def test_t7_importance_weighting_makes_the_kl_unbiased_off_policy() -> None:
    p = torch.log_softmax(torch.tensor([0.3, -1.0, 0.8, 0.1]), -1)
    q = torch.log_softmax(torch.tensor([-0.2, 0.4, 0.5, -1.0]), -1)
    behaviour = torch.log_softmax(torch.tensor([0.1, 0.2, -0.3, 0.4]), -1)
    given = Tokens(p, behaviour, torch.zeros(4), torch.arange(4), q)
    spec = loss_spec(kl_coefficient=1, kl_importance_weighted=True)
    value = (behaviour.exp() * token_losses(given, spec).total).sum()
    assert float(value) == pytest.approx(float((p.exp() * (p - q)).sum()), rel=1e-5)


def test_gspo_by_its_definition() -> None:
    """Equation 5 of arXiv 2507.18071, differentiated as it stands."""
    now = torch.tensor([-1.0, -0.7, -2.0, -0.4, -1.5], requires_grad=True)
    old = torch.tensor([-1.2, -0.5, -1.9, -0.9, -1.4])
    lengths, advantages = [2, 3], [1.0, -0.5]
    expected = torch.zeros(())
    for part, advantage in zip((slice(0, 2), slice(2, 5)), advantages, strict=True):
        s = torch.exp((now[part] - old[part]).mean())
        clip = s.clamp(1 - 0.3, 1 + 0.4)
        expected = expected - torch.minimum(s * advantage, clip * advantage) / 2
    (gradient,) = torch.autograd.grad(expected, now)

    owners = [0, 0, 1, 1, 1]
    given = tokens(now.detach(), old.tolist(), [advantages[i] for i in owners], trajectories=owners)
    spec = loss_spec(objective="OBJECTIVE_GSPO", epsilon=0.3, epsilon_high=0.4)
    weights = torch.tensor([1 / (2 * lengths[i]) for i in owners])
    total = (token_losses(given, spec).total * weights).sum()
    (got,) = torch.autograd.grad(total, given.logprobs)
    assert float(total) == pytest.approx(float(expected), rel=1e-6)
    torch.testing.assert_close(got, gradient)


def test_the_trainers_own_policy_as_old_needs_no_second_pass() -> None:
    given = tokens([-1.0, -2.0], [-1.5, -1.0], [1.0, -1.0])
    spec = loss_spec(old_policy="OLD_POLICY_TRAINER", importance_cap=1.2)
    losses = token_losses(given, spec)
    assert losses.ratio.tolist() == [1, 1]
    _, gradient = mean_and_gradient(given, losses)
    # -A ratio min(exp(now - sampler), cap) / 2, with ratio 1.
    assert gradient == pytest.approx([-1.2 / 2, math.exp(-1) / 2])


def test_a_trajectory_off_the_samplers_policy_leaves_the_loss() -> None:
    given = tokens(
        [-1.0, -1.0, -1.0, -1.0], [-1.1, -0.9, -3.0, -1.0], [1.0] * 4, trajectories=[0, 0, 1, 1]
    )
    spec = loss_spec(objective="OBJECTIVE_REINFORCE", sequence_ratio_min=0.5, sequence_ratio_max=2)
    losses = token_losses(given, spec)
    assert losses.kept.tolist() == [True, True, False, False]
    _, gradient = mean_and_gradient(given, losses)
    assert gradient == [-0.25, -0.25, 0, 0]


def test_a_trajectory_in_two_rows_has_one_ratio() -> None:
    whole = tokens([-1.0, -0.5, -2.0], [-1.4, -0.3, -1.0], [1.0] * 3, trajectories=[0, 0, 0])
    spec = loss_spec(objective="OBJECTIVE_GSPO", epsilon=0.9, epsilon_high=9)
    expected = token_losses(whole, spec)
    means = BatchValues(log_ratio_means=torch.tensor([(0.4 - 0.2 - 1.0) / 3]))
    for cut in (slice(0, 1), slice(1, 3)):
        part = tokens(
            whole.logprobs.detach()[cut],
            whole.sampler[cut].tolist(),
            [1.0] * len(whole.sampler[cut]),
            trajectories=[0] * len(whole.sampler[cut]),
        )
        torch.testing.assert_close(token_losses(part, spec, means).ratio, expected.ratio[cut])
