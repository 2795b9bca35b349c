"""Supervised fine-tuning is Transformers' own cross-entropy, and held-out rows teach nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from podium.core.sft import HELDOUT
from podium.types.v1 import trajectory_pb2
from podium_trainer.domain.batch import build_batch
from podium_trainer.learner.checkpoint import Checkpoint, read, write
from podium_trainer.learner.model import Policy
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.session import Compute, JobConfig, Session, StepOutcome
from podium_trainer.learner.step import accumulate_gradient
from support.tiny_policy import VOCABULARY, group, training_spec, trajectory
from transformers import LlamaForCausalLM

SUPERVISED = {"objective": "OBJECTIVE_SUPERVISED"}
# Rows of unlike lengths, with what is common to two of them and turns of unlike lengths.
ROWS = [
    ([5, 6, 7, 8, 9, 10, 11, 12], [(3, 2), (6, 2)]),
    ([5, 6, 7, 20, 21, 22], [(3, 3)]),
    ([40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50], [(1, 4), (7, 1)]),
]


def rows(split: str = "") -> list[trajectory_pb2.Group]:
    made = []
    for number, (tokens, spans) in enumerate(ROWS):
        name = f"{split or 'row'}{number}"
        one = group(name, trajectory(f"{name}/t0", None, tokens, spans, logprobs=[]))
        one.scenario.split = split
        made.append(one)
    return made


def cross_entropy(model: LlamaForCausalLM) -> torch.Tensor:
    """Transformers' loss of the same rows, padded, all but the turns masked with -100."""
    longest = max(len(tokens) for tokens, _ in ROWS)
    ids = torch.zeros(len(ROWS), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    attention = torch.zeros_like(ids)
    for number, (tokens, spans) in enumerate(ROWS):
        ids[number, : len(tokens)] = torch.tensor(tokens)
        attention[number, : len(tokens)] = 1
        for start, length in spans:
            labels[number, start : start + length] = ids[number, start : start + length]
    loss: torch.Tensor = model(input_ids=ids, attention_mask=attention, labels=labels).loss
    return loss


def test_loss_and_gradient_are_those_of_transformers_on_the_masked_tokens(
    small_llama: Path,
) -> None:
    training = training_spec(trainable="TRAINABLE_KIND_FULL", loss=SUPERVISED)
    policy = Policy(small_llama, "small-llama", training, seed=0, dtype=torch.float32)
    found: dict[str, torch.Tensor] = {}
    batch = build_batch(rows(), training, VOCABULARY)
    numbers = accumulate_gradient(
        policy, batch, training, row_tokens=4096, cancelled=lambda: False, phases=Phases()
    )
    for name, weight in policy.masters.weights.items():
        assert weight.grad is not None, name
        found[name] = weight.grad.clone()
    policy.masters.discard_gradients()

    model = LlamaForCausalLM.from_pretrained(small_llama, dtype=torch.float32)
    loss = cross_entropy(model)
    loss.backward()
    assert numbers["loss"] == pytest.approx(float(loss.detach()), abs=1e-5)
    expected = {name: weight.grad for name, weight in model.named_parameters()}
    assert expected.keys() <= found.keys() | {"lm_head.weight"}
    for name, tensor in expected.items():
        assert tensor is not None
        assert float(tensor.abs().max()) > 0, name
        assert torch.allclose(found[name], tensor, atol=1e-5, rtol=1e-5), name


def stepped(session: Session, groups: list[trajectory_pb2.Group]) -> StepOutcome:
    return session.train(groups, lambda: False)


def test_held_out_rows_are_measured_after_the_step_and_teach_nothing(small_llama: Path) -> None:
    training = training_spec(loss=SUPERVISED, learning_rate=0.01, lora={"rank": 4})
    config = JobConfig("job", "small-llama", training, 0)
    alone, both = (Session(config, small_llama, "", Compute()) for _ in range(2))
    for _ in range(3):
        first = stepped(alone, rows())
        second = stepped(both, [*rows(), *rows(HELDOUT)])
        assert "heldout_loss" not in first.metrics
        assert second.metrics["heldout_tokens"] == second.metrics["tokens_trained"]
        assert second.metrics["loss"] == first.metrics["loss"]
        measured = second.metrics["heldout_loss"]
        assert measured < second.metrics["loss"]
    # The rows are the same: what was measured after a step is the loss before the next one.
    assert stepped(both, rows()).metrics["loss"] == pytest.approx(measured, abs=1e-6)
    weights = alone.policy.masters.weights
    stepped(alone, rows())
    for name, weight in both.policy.masters.weights.items():
        assert torch.equal(weight, weights[name]), name


def test_a_job_of_another_objective_learns_rows_as_one_of_rows_does(small_llama: Path) -> None:
    """Of a batch that says so, at the rate that it says; then it samples on."""

    def opened(**training: object) -> Session:
        spec = training_spec(lora={"rank": 4}, **training)
        return Session(JobConfig("job", "small-llama", spec, 0), small_llama, "", Compute())

    shown = rows()
    for each in shown:
        each.batch_training.supervised = True
        each.batch_training.learning_rate = 0.01
    clipped = {"objective": "OBJECTIVE_CLIPPED", "kl_coefficient": 0.1}
    mixed = opened(loss=clipped, learning_rate=1e-5, warmup_steps=9, mini_batches=2, epochs=2)
    plain = opened(loss=SUPERVISED, learning_rate=0.01)
    for _ in range(2):
        ours, theirs = stepped(mixed, shown).metrics, stepped(plain, rows()).metrics
        assert (ours["loss"], ours["learning_rate"]) == (theirs["loss"], 0.01)
        assert "updates" not in ours
    weights = plain.policy.masters.weights
    for name, weight in mixed.policy.masters.weights.items():
        assert torch.equal(weight, weights[name]), name
    attempts = [trajectory(f"g/t{n}", float(n), [1, 2, 3, 4 + n], [(2, 2)]) for n in range(2)]
    own = stepped(mixed, [group("g", *attempts)]).metrics
    # One group is one mini-batch, in two passes.
    assert (own["trajectories_trained"], own["updates"]) == (2, 2)
    assert own["learning_rate"] == pytest.approx(1e-5 * 3 / 9)
    rated = group("h", *attempts)
    rated.batch_training.learning_rate = 1e-3
    assert stepped(mixed, [rated]).metrics["learning_rate"] == 1e-3


@pytest.mark.parametrize("first", ["shown", "sampled"])
def test_moments_begin_anew_with_the_other_objective_however_often_the_job_is_opened(
    small_llama: Path, tmp_path: Path, first: str
) -> None:
    """What one objective's gradients were says nothing of the other's."""
    training = training_spec(lora={"rank": 4}, learning_rate=1e-3)
    config = JobConfig("job", "small-llama", training, 0)

    def opened(checkpoint: Checkpoint | None = None) -> Session:
        return Session(config, small_llama, "", Compute(), checkpoint)

    attempts = [trajectory(f"g/t{n}", float(n), [1, 2, 3, 4 + n], [(2, 2)]) for n in range(2)]
    batches = {"shown": rows(), "sampled": [group("g", *attempts)]}
    for each in batches["shown"]:
        each.batch_training.supervised = True
    one = batches.pop(first)
    (other,) = batches.values()
    trained = opened()
    for _ in range(2):
        stepped(trained, one)
    write(trained.checkpoint(), small_llama, tmp_path / "version", Ranks())
    stored = read(tmp_path / "version")
    assert stored.optimizer
    going_on, resumed, fresh = trained, opened(stored), opened(replace(stored, optimizer={}))
    # A step that trains nothing is none of either.
    stepped(going_on, [])
    stepped(resumed, [])
    stepped(fresh, [])
    for _ in range(2):
        for session in (going_on, resumed, fresh):
            stepped(session, other)
        weights = fresh.policy.masters.weights
        for session in (going_on, resumed):
            for name, weight in session.policy.masters.weights.items():
                assert torch.equal(weight, weights[name]), name
    # Of a version that does not say, they go on.
    old = opened(replace(stored, supervised=None))
    stepped(old, other)
    assert old.checkpoint().optimizer.keys() == stored.optimizer.keys()
    assert {float(v) for k, v in old.checkpoint().optimizer.items() if k.endswith(".step")} == {3}


def test_a_held_out_row_that_does_not_fit_is_told(small_llama: Path) -> None:
    training = training_spec(loss=SUPERVISED, max_row_tokens=16)
    session = Session(JobConfig("job", "small-llama", training, 0), small_llama, "", Compute())
    long = group("long", trajectory("long/t0", None, [1] * 40, [(30, 5)], logprobs=[]))
    long.scenario.split = HELDOUT
    outcome = stepped(session, [*rows(), long])
    assert outcome.batch.skipped_groups == {"long": "no_trainable_trajectory"}
    assert "heldout_loss" not in outcome.metrics


def test_other_objectives_know_no_held_out_rows(small_llama: Path) -> None:
    training = training_spec(loss={"objective": "OBJECTIVE_REINFORCE"})
    session = Session(JobConfig("job", "small-llama", training, 0), small_llama, "", Compute())
    split = group(
        "g",
        *(trajectory(f"g/t{n}", float(n), [1, 2, 3, 4 + n], [(2, 2)]) for n in range(2)),
    )
    split.scenario.split = HELDOUT
    assert stepped(session, [split]).metrics["trajectories_trained"] == 2
