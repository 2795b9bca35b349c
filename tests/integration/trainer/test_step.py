"""T10, T12: the gradient of a step does not know how its samples were laid out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from podium.core.errors import FailedPreconditionError, RequestCancelledError
from podium.types.v1 import trajectory_pb2
from podium_trainer.domain.batch import build_batch
from podium_trainer.domain.packing import Row, flat, pack
from podium_trainer.learner import step as step_module
from podium_trainer.learner.model import Policy
from podium_trainer.learner.optimizer import Optimizer
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.step import accumulate_gradient
from support.tiny_policy import VOCABULARY, group, move_adapter, training_spec, trajectory


def groups() -> list[trajectory_pb2.Group]:
    """Three groups of four; every second trajectory has two histories of unlike beginnings."""
    rng = np.random.default_rng(5)

    def attempt(g: int, i: int) -> trajectory_pb2.Trajectory:
        name = f"g{g}/t{i}"
        answer = rng.integers(1, VOCABULARY, 9).tolist()
        logprobs = (-rng.uniform(2, 6, 6)).tolist()
        made = trajectory(
            name,
            float(rng.normal()),
            [g + 1, 7, 8, 9, *answer],
            [(4, 4), (10, 2)],
            logprobs=logprobs,
            teacher=[value / 2 for value in logprobs],
        )
        if i % 2:
            prompt = [50 + i, 51, *answer]
            said = {"logprobs": logprobs[:5], "teacher": logprobs[1:]}
            other = trajectory(name, 0, prompt, [(3, 5)], **said)
            made.histories.append(other.histories[0])
        return made

    return [group(f"g{g}", *(attempt(g, i) for i in range(4))) for g in range(3)]


LOSSES: dict[str, dict[str, Any]] = {
    "clipped": {},
    "sequence_mean": {"aggregation": "AGGREGATION_KIND_SEQUENCE"},
    "constant": {"aggregation": "AGGREGATION_KIND_CONSTANT", "aggregation_tokens": 20},
    "kl_in_loss": {"kl_coefficient": 0.1},
    "kl_in_advantage": {"kl_coefficient": 0.1, "kl_placement": "KL_PLACEMENT_ADVANTAGE"},
    "gspo": {"objective": "OBJECTIVE_GSPO", "epsilon": 0.5, "epsilon_high": 3},
    "turns": {"turn_advantage": "TURN_ADVANTAGE_ADDED", "turn_discount": 0.5},
    "gspo_turns": {
        "objective": "OBJECTIVE_GSPO",
        "epsilon": 0.5,
        "epsilon_high": 3,
        "turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO",
        "turn_discount": 0.5,
    },
    "cispo_average": {"objective": "OBJECTIVE_CISPO", "ratio_level": "RATIO_LEVEL_AVERAGE"},
    "masked": {
        "objective": "OBJECTIVE_REINFORCE",
        "sequence_ratio_min": 0.8,
        "importance_cap": 2,
        "advantage": "ADVANTAGE_KIND_BATCH",
    },
    "supervised": {"objective": "OBJECTIVE_SUPERVISED"},
    "distilled": {"teacher_coefficient": 1},
    "distilled_and_rewarded": {
        "objective": "OBJECTIVE_CISPO",
        "teacher_coefficient": 0.5,
        "reward_coefficient": 2,
        "kl_coefficient": 0.1,
    },
}

Layouts = Callable[[Any, int, Any], list[Row]]


def gradient(
    policy: Policy, loss: dict[str, Any], *, row_tokens: int
) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    training = training_spec(loss=loss)
    batch = build_batch(groups(), training, VOCABULARY)
    metrics = accumulate_gradient(
        policy,
        batch,
        training,
        row_tokens=row_tokens,
        cancelled=lambda: False,
        phases=Phases(),
    )
    found = {name: weight.grad.clone() for name, weight in policy.masters.weights.items()}
    policy.masters.discard_gradients()
    return found, metrics


LAYOUTS: dict[str, tuple[Layouts, int]] = {
    "small rows": (pack, 16),
    "one sample a row": (lambda samples, *_: flat(samples), 16),
    "middle rows in reverse": (lambda samples, budget, _: pack(samples, budget)[::-1], 40),
}


def test_s12_a_step_tells_its_loss_and_with_a_weight_its_kl(policy: Policy) -> None:
    _, numbers = gradient(policy, LOSSES["kl_in_loss"], row_tokens=4096)
    assert {"loss", "kl_reference", "kl_loss", "policy_loss"} <= set(numbers)
    assert numbers["kl_reference"] > 0
    _, numbers = gradient(policy, {}, row_tokens=4096)
    assert "loss" in numbers
    assert "kl_reference" not in numbers


@pytest.mark.parametrize("loss", LOSSES)
def test_t10_t12_the_layout_changes_neither_gradient_nor_statistics(
    policy: Policy, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, numbers = gradient(policy, LOSSES[loss], row_tokens=4096)
    assert numbers["rows"] == 1
    scale = max(float(tensor.abs().max()) for tensor in expected.values())
    assert scale > 1e-4
    for name, (layout, budget) in LAYOUTS.items():
        monkeypatch.setattr(step_module, "pack", layout)
        found, other = gradient(policy, LOSSES[loss], row_tokens=budget)
        assert other["rows"] > 1, name
        for weight, tensor in expected.items():
            assert float((found[weight] - tensor).abs().max()) <= 1e-5 * scale, (name, weight)
        for key, value in numbers.items():
            if key not in ("rows", "tokens_packed"):
                assert other[key] == pytest.approx(value, rel=1e-5, abs=1e-6), (name, key)


def test_gradient_checkpointing_changes_no_bit(policy: Policy, small_llama: Path) -> None:
    spec = training_spec(lora={"rank": 4, "alpha": 8}, gradient_checkpointing=True)
    other = Policy(small_llama, "small-llama", spec, seed=0, dtype=torch.float32)
    move_adapter(other)
    calls = []
    block = other.network.causal.get_decoder().layers[0]
    block.mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    expected, _ = gradient(policy, {}, row_tokens=4096)
    found, _ = gradient(other, {}, row_tokens=4096)
    assert len(calls) == 2
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize("again", [False, True], ids=["activations kept", "computed again"])
def test_a_step_can_be_given_up_as_it_packs_and_before_any_layer_of_a_row(
    small_llama: Path, again: bool
) -> None:
    spec = training_spec(lora={"rank": 4, "alpha": 8}, gradient_checkpointing=again)
    policy = Policy(small_llama, "small-llama", spec, seed=0, dtype=torch.float32)
    move_adapter(policy)
    expected, numbers = gradient(policy, {}, row_tokens=4096)
    assert numbers["rows"] == 1
    passes: list[str] = []
    for number, block in enumerate(policy.network.causal.get_decoder().layers):
        block.mlp.register_forward_pre_hook(lambda *_, n=number: passes.append(f"forward {n}"))
    batch = build_batch(groups(), spec, VOCABULARY)

    def run(questions: int) -> list[str]:
        """The layers that were passed when the answer is yes from that question on."""
        asked = iter(range(10_000))
        passes.clear()
        with pytest.raises(RequestCancelledError):
            accumulate_gradient(
                policy,
                batch,
                spec,
                row_tokens=4096,
                cancelled=lambda: next(asked) >= questions,
                phases=Phases(),
            )
        # Nobody went on after the first yes.
        assert next(asked) == questions + 1
        assert all(weight.grad is None for weight in policy.masters.weights.values())
        return list(passes)

    asked_to_pack: list[None] = []
    pack(batch.samples, 4096, lambda: asked_to_pack.append(None))
    packed = len(asked_to_pack)
    assert packed > 1
    # While rows are packed, before the row, before each layer forwards, and before each backwards.
    assert all(run(questions) == [] for questions in range(packed + 2))
    assert run(packed + 2) == ["forward 0"]
    both = ["forward 0", "forward 1"]
    assert run(packed + 3) == both
    backwards = [run(packed + questions) for questions in ((4, 5, 6) if again else (4,))]
    assert backwards[-1] == (["forward 0", "forward 1", "forward 1"] if again else both)
    found, _ = gradient(policy, {}, row_tokens=4096)
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_full_fine_tuning_has_the_gradient_of_plain_transformers(small_llama: Path) -> None:
    """Every weight's, the tied embedding's two parts included, of -mean(log p)."""
    from transformers import AutoModelForCausalLM

    spec = training_spec(
        trainable="TRAINABLE_KIND_FULL", loss={"objective": "OBJECTIVE_SUPERVISED"}
    )
    policy = Policy(small_llama, "small-llama", spec, seed=0, dtype=torch.float32)
    tokens = [3, 5, 8, 13, 21, 34, 55]
    batch = build_batch([group("g", trajectory("g/t", None, tokens, [(2, 5)]))], spec, VOCABULARY)
    accumulate_gradient(
        policy, batch, spec, row_tokens=64, cancelled=lambda: False, phases=Phases()
    )
    plain = AutoModelForCausalLM.from_pretrained(small_llama, dtype=torch.float32)
    labels = torch.tensor([[-100, -100, *tokens[2:]]])
    plain(input_ids=torch.tensor([tokens]), labels=labels).loss.backward()
    expected = dict(plain.named_parameters())
    assert expected.keys() == policy.masters.weights.keys()
    assert policy.trainable_parameters == sum(p.numel() for p in expected.values())
    for name, weight in policy.masters.weights.items():
        torch.testing.assert_close(weight.grad, expected[name].grad, atol=1e-6, rtol=1e-4)


def test_the_reference_of_full_fine_tuning_is_a_frozen_copy(small_llama: Path) -> None:
    spec = training_spec(trainable="TRAINABLE_KIND_FULL", loss={"kl_coefficient": 0.1})
    policy = Policy(small_llama, "small-llama", spec, seed=0, dtype=torch.float32)
    batch = build_batch(groups(), spec, VOCABULARY)
    (row,) = pack(batch.samples, 4096)
    before = policy.reference_logprobs(row)
    assert torch.equal(before, policy.evaluate(row).logprobs.detach())
    with torch.no_grad():
        for weight in policy.masters.weights.values():
            weight.mul_(1.1)
    assert torch.equal(before, policy.reference_logprobs(row))
    assert not torch.equal(before, policy.evaluate(row).logprobs.detach())


def test_a_gradient_that_is_no_number_is_refused_by_name_and_applied_by_nobody() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = Optimizer({"w": weight}, training_spec())
    weight.grad = torch.tensor([float("nan"), 1.0])
    # A reason of its own: masked as INTERNAL, nobody who reads of the job would know.
    with pytest.raises(FailedPreconditionError) as caught:
        optimizer.clip()
    assert caught.value.reason == "NON_FINITE_GRADIENT"
    assert weight.tolist() == [1.0, 1.0]
