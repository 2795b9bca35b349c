"""On-policy distillation by the real network: its gradient, and what a student becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.domain.batch import build_batch
from podium_trainer.learner.model import Policy
from podium_trainer.learner.optimizer import Optimizer
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.step import accumulate_gradient, apply_gradient
from support.tiny_policy import (
    VOCABULARY,
    build_small_llama,
    group,
    move_adapter,
    training_spec,
    trajectory,
)

TEMPERATURE = 0.8
LORA = {"rank": 4, "alpha": 8}


def step(
    policy: Policy, groups: Sequence[trajectory_pb2.Group], training: spec_pb2.TrainingSpec
) -> dict[str, float]:
    """Adds up the gradient."""
    batch = build_batch(groups, training, VOCABULARY)
    return accumulate_gradient(
        policy, batch, training, row_tokens=256, cancelled=lambda: False, phases=Phases()
    )


def tables(policy: Policy, rows: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """[N, n] token ids → [N, n, V] log-probs of what follows each: whole, and nothing packed."""
    causal = policy.network.causal
    before = causal.config._attn_implementation
    causal.set_attn_implementation("eager")
    try:
        return torch.log_softmax(causal(input_ids=rows).logits.float() / temperature, dim=-1)
    finally:
        causal.set_attn_implementation(before)


def test_the_gradient_is_that_of_a_plain_autograd_of_the_formula(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(3)
    loss = {"objective": "OBJECTIVE_REINFORCE", "teacher_coefficient": 0.7}
    training = training_spec(lora=LORA, loss={**loss, "importance_cap": 2.0})
    attempts, plain = [], torch.zeros(())
    for number in range(4):
        # A prompt in common, and two runs of sampled tokens.
        drawn = torch.randint(1, VOCABULARY, (10,), generator=generator).tolist()
        tokens = [5, 6, 7, *drawn]
        teacher = (-4 * torch.rand(7, generator=generator)).tolist()
        sampler = (-4 * torch.rand(7, generator=generator)).tolist()
        attempts.append(
            trajectory(
                f"g/t{number}",
                None,
                tokens,
                [(3, 4), (10, 3)],
                logprobs=sampler,
                teacher=teacher,
                temperature=TEMPERATURE,
            )
        )
        table = tables(policy, torch.tensor([tokens]), TEMPERATURE)[0]
        now = torch.stack([table[i - 1, tokens[i]] for i in (*range(3, 7), *range(10, 13))])
        ratio = torch.exp(now - torch.tensor(sampler)).detach().clamp(max=2.0)
        advantage = 0.7 * (torch.tensor(teacher) - now.detach())
        plain = plain - (ratio * advantage * now).sum() / 28
    weights = list(policy.masters.weights.items())
    plain.backward()
    policy.masters.collect()
    expected = {name: weight.grad.clone() for name, weight in weights}
    policy.masters.discard_gradients()
    metrics = step(policy, [group("g", *attempts)], training)
    found = {name: weight.grad.clone() for name, weight in weights}
    policy.masters.discard_gradients()
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-3
    for name, value in expected.items():
        assert float((found[name] - value).abs().max()) < 1e-6, name
    assert math.isclose(metrics["loss"], float(plain.detach()), abs_tol=1e-5)


@torch.no_grad()
def sampled(
    policy: Policy, teacher: Policy, attempts: int, generator: torch.Generator
) -> list[trajectory_pb2.Trajectory]:
    """Attempts of six tokens by the policy, and what the teacher says of them."""
    prompt = [3, 14, 15]
    rows = torch.tensor([prompt] * attempts)
    said: list[torch.Tensor] = []
    for _ in range(6):
        table = tables(policy, rows)[:, -1]
        drawn = torch.multinomial(table.exp(), 1, generator=generator)
        said.append(table.gather(1, drawn)[:, 0])
        rows = torch.cat([rows, drawn], dim=1)
    own = torch.stack(said, dim=1)
    taught = tables(teacher, rows)[:, 2:-1].gather(2, rows[:, 3:, None])[:, :, 0]
    return [
        trajectory(
            f"g/t{i}",
            None,
            rows[i].tolist(),
            [(3, 6)],
            logprobs=own[i].tolist(),
            teacher=taught[i].tolist(),
        )
        for i in range(attempts)
    ]


def divergence(trajectories: Sequence[trajectory_pb2.Trajectory]) -> float:
    """Mean of log p - log p_teacher over what was sampled."""
    gaps = [
        one - other
        for each in trajectories
        for record in [each.histories[0].tokens]
        for one, other in zip(record.logprobs, record.teacher_logprobs, strict=True)
    ]
    return sum(gaps) / len(gaps)


@pytest.mark.long
def test_a_student_becomes_its_teacher_by_its_own_samples(tmp_path: Path) -> None:
    folder = build_small_llama(tmp_path / "model", seed=1)
    changes: dict[str, Any] = {"lora": LORA, "loss": {"teacher_coefficient": 1.0}}
    training = training_spec(learning_rate=1e-2, **changes)
    torch.manual_seed(0)
    teacher = Policy(folder, "small", training, seed=1, dtype=torch.float32)
    move_adapter(teacher, scale=0.07)
    student = Policy(folder, "small", training, seed=0, dtype=torch.float32)
    optimizer = Optimizer(student.masters.weights, training)
    generator = torch.Generator().manual_seed(0)
    curve = []
    for _ in range(40):
        attempts = sampled(student, teacher, 192, generator)
        curve.append(divergence(attempts))
        step(student, [group("g", *attempts)], training)
        apply_gradient(student, optimizer, learning_rate=1e-2, phases=Phases())
    first, last = sum(curve[:3]) / 3, sum(curve[-5:]) / 5
    print("reverse KL, nats a token:", " ".join(f"{value:.3f}" for value in curve))
    assert first > 0.1
    assert last < first / 2.5
