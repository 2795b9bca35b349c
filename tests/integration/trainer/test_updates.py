"""A step of several updates is the loop that everybody writes, and one version all the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from podium.core.errors import FailedPreconditionError, RequestCancelledError
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_trainer.adapters.team import Team
from podium_trainer.domain.advantages import advantages
from podium_trainer.domain.batch import build_batch
from podium_trainer.domain.mini_batches import ShuffleSeed, mini_batches, passes
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig, Session
from podium_trainer.worker import Worker
from support.near_policy import answer_logprobs, near_groups
from support.tiny_policy import VOCABULARY, training_spec

SEED = 5
RATE = 1e-4


def session(folder: Path, checkpoint: Any = None, **changes: Any) -> Session:
    options = {
        "learning_rate": RATE,
        "dtype": "COMPUTE_DTYPE_FLOAT32",
        "weight_decay": 0.1,
        **changes,
    }
    config = JobConfig("job", "small-llama", training_spec(**options), SEED)
    # Several rows an update.
    return Session(config, folder, "sha256:x", Compute(row_tokens=60), checkpoint)


def weights(of: Session) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in of.policy.masters.weights.items()}


def by_hand(
    folder: Path, groups: list[trajectory_pb2.Group], of: Session
) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor, float]]:
    """After each update a plain loop's weights, its ratios, and its gradient's norm."""
    from transformers import AutoModelForCausalLM

    spec, loss = of.config.training, of.config.training.loss
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1
    )
    rewards = [[each.reward for each in found.trajectories] for found in groups]
    scaled = [
        advantages([torch.tensor(one, dtype=torch.float64).numpy()], loss.advantage, loss.deviation)
        for one in rewards
    ]
    everyone = [
        (found.id, attempt, float(values[0][i]))
        for found, values in zip(groups, scaled, strict=True)
        for i, attempt in enumerate(found.trajectories)
    ]
    with torch.no_grad():
        start = {each.id: answer_logprobs(model, each) for _, each, _ in everyone}
    by_trainer = loss.old_policy == spec_pb2.OLD_POLICY_TRAINER
    draw = ShuffleSeed(SEED, 1)
    parts = mini_batches(build_batch(groups, spec, VOCABULARY), spec, draw)
    for number in passes(len(parts), spec, draw):
        chosen = {parts[number].group_ids[item.group] for item in parts[number].samples}
        optimizer.zero_grad()
        losses, ratios = [], []
        for name, attempt, advantage in everyone:
            if name not in chosen:
                continue
            now = answer_logprobs(model, attempt)
            sampler = torch.tensor(attempt.histories[0].tokens.logprobs)
            ratio = torch.exp(now - (start[attempt.id] if by_trainer else sampler))
            bounded = ratio.clamp(1 - loss.epsilon, 1 + loss.epsilon_high)
            token = -torch.minimum(ratio * advantage, bounded * advantage)
            if by_trainer:
                token = token * torch.exp(start[attempt.id] - sampler).clamp(max=1.2)
            losses.append(token)
            ratios.append(ratio.detach())
        torch.cat(losses).mean().backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        found = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        yield found, torch.cat(ratios), norm


OLD: dict[str, dict[str, Any]] = {
    "sampler": {"epsilon": 0.1, "epsilon_high": 0.15},
    "trainer": {
        "old_policy": "OLD_POLICY_TRAINER",
        "importance_cap": 1.2,
        "epsilon": 0.01,
        "epsilon_high": 0.015,
    },
}


@pytest.mark.parametrize("old", OLD)
def test_the_updates_are_those_of_a_plain_loop(small_llama: Path, old: str) -> None:
    groups = near_groups(small_llama, 1)
    ours = session(
        small_llama, trainable="TRAINABLE_KIND_FULL", loss=OLD[old], mini_batches=3, epochs=2
    )
    before = weights(ours)
    numbers = ours.train(groups, lambda: False).metrics
    assert numbers["updates"] == 6
    after = weights(ours)
    expected: dict[str, torch.Tensor] = {}
    for update, (moved, ratios, norm) in enumerate(by_hand(small_llama, groups, ours), 1):
        expected = moved
        told = numbers[f"policy_ratio_mean_update_{update}"]
        assert told == pytest.approx(float(ratios.mean()), rel=1e-5)
        assert numbers[f"grad_norm_update_{update}"] == pytest.approx(norm, rel=1e-4)
    far = math.sqrt(sum(float((expected[n] - before[n]).square().sum()) for n in before))
    apart = math.sqrt(sum(float((after[n] - expected[n]).square().sum()) for n in before))
    # Adam divides by a gradient's own size: what is rounded in the smallest moves as the largest.
    # Seen: 0.00025 of the way, 8e-8 of a weight in the mean square.
    assert apart <= 1e-3 * far
    assert apart <= 1e-6 * math.sqrt(ours.policy.trainable_parameters)
    # The updates moved so far that the clip counts, and in the first it is the old policy's.
    first, last = numbers["clip_fraction_update_1"], numbers["clip_fraction_update_6"]
    assert last > first
    assert (first == 0) == (old == "trainer")
    assert numbers["kl_step_update_1"] == 0 < numbers["kl_step_update_6"]


def test_numbers_of_a_step_are_means_over_its_updates(small_llama: Path) -> None:
    ours = session(
        small_llama,
        lora={"rank": 4},
        loss={"kl_coefficient": 0.1},
        mini_batches=3,
        epochs=2,
        warmup_steps=4,
    )
    groups = near_groups(small_llama, 1)
    numbers = ours.train(groups, lambda: False).metrics
    updates = range(1, 7)
    for name in ("loss", "grad_norm"):
        each = [numbers[f"{name}_update_{update}"] for update in updates]
        assert numbers[name] == pytest.approx(sum(each) / 6)
    assert numbers["loss"] == pytest.approx(numbers["policy_loss"] + numbers["kl_loss"])
    assert numbers["tokens_trained"] == 6 * 4 * 12
    # Before the step: the two programs, and not what the updates made of them.
    alone = session(small_llama, lora={"rank": 4}).train(groups, lambda: False).metrics
    assert numbers["mismatch_kl"] == pytest.approx(alone["mismatch_kl"], rel=1e-5)
    assert numbers["logprob_difference_max"] == pytest.approx(alone["logprob_difference_max"])
    # Steps are what the schedule counts.
    assert numbers["learning_rate"] == RATE / 4
    assert ours.train(groups, lambda: False).metrics["learning_rate"] == RATE / 2
    assert alone.keys() & {"updates", "kl_step", "policy_ratio_mean"} == set()


SPLIT: dict[str, dict[str, Any]] = {
    "gspo": {"objective": "OBJECTIVE_GSPO", "epsilon": 0.1, "epsilon_high": 0.1},
    "masked": {
        "old_policy": "OLD_POLICY_TRAINER",
        "sequence_ratio_min": 0.97,
        "sequence_ratio_max": 1.03,
    },
    "kl in advantage": {"kl_coefficient": 0.2, "kl_placement": "KL_PLACEMENT_ADVANTAGE"},
}


@pytest.mark.parametrize("loss", SPLIT)
def test_rows_change_nothing_in_any_update(
    small_llama: Path, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Histories of one attempt in several rows: what is of all its tokens is looked up first."""
    groups = near_groups(small_llama, 1, groups=4)
    more = near_groups(small_llama, 2, groups=4)
    for found, other in zip(groups, more, strict=True):
        for attempt, extra in zip(found.trajectories, other.trajectories, strict=True):
            attempt.histories.append(extra.histories[0])
    options = {"lora": {"rank": 4}, "loss": SPLIT[loss], "mini_batches": 2, "epochs": 2}
    made = []
    for rows in (4096, 24):
        ours = session(small_llama, **options)
        monkeypatch.setattr(ours, "_compute", Compute(row_tokens=rows))
        numbers = ours.train(groups, lambda: False).metrics
        made.append((weights(ours), numbers))
    (one, few), (two, many) = made
    assert many["rows"] > few["rows"] == 2
    far = math.sqrt(
        sum(float(tensor.square().sum()) for name, tensor in one.items() if "_B" in name)
    )
    apart = math.sqrt(sum(float((one[name] - two[name]).square().sum()) for name in one))
    assert far > 1e-3
    assert apart <= 1e-4 * far
    for name in ("clip_fraction", "masked_fraction", "kl_step", "policy_ratio_mean", "loss"):
        assert many[name] == pytest.approx(few[name], rel=1e-4, abs=1e-6), name


def test_a_resumed_job_takes_the_same_updates_bit_for_bit(small_llama: Path) -> None:
    options: dict[str, Any] = {"lora": {"rank": 4}, "mini_batches": 3, "epochs": 2}
    whole = session(small_llama, **options)
    batches = [near_groups(small_llama, step) for step in (1, 2, 3)]
    whole.train(batches[0], lambda: False)
    checkpoint = whole.checkpoint()
    whole.train(batches[1], lambda: False)
    whole.train(batches[2], lambda: False)
    resumed = session(small_llama, checkpoint, **options)
    resumed.train(batches[1], lambda: False)
    resumed.train(batches[2], lambda: False)
    assert resumed.step == whole.step == 3
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(resumed)[name]), name


def test_a_step_that_ends_between_two_updates_is_no_step(small_llama: Path) -> None:
    groups = near_groups(small_llama, 1)
    ours = session(small_llama, lora={"rank": 4}, mini_batches=3)
    before = weights(ours)
    with pytest.raises(RequestCancelledError):
        ours.train(groups, lambda: True)
    # Before the first update nothing has moved, and the step may be taken again.
    assert not ours.torn
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(ours).items())

    def after_the_first_update() -> bool:
        return ours.torn

    with pytest.raises(RequestCancelledError):
        ours.train(groups, after_the_first_update)
    assert ours.torn
    assert ours.step == 0
    assert any(not torch.equal(before[name], tensor) for name, tensor in weights(ours).items())
    with pytest.raises(FailedPreconditionError) as refused:
        ours.train(groups, lambda: False)
    assert refused.value.reason == "JOB_NOT_OPEN"


async def test_the_worker_keeps_no_job_whose_step_ended_halfway(small_llama: Path) -> None:
    """Opened again at the version it was at, it would seem to be there still."""
    spec = training_spec(
        lora={"rank": 4},
        dtype="COMPUTE_DTYPE_FLOAT32",
        loss={"advantage": "ADVANTAGE_KIND_NONE"},
        mini_batches=2,
    )
    groups = near_groups(small_llama, 1)
    _, second = mini_batches(build_batch(groups, spec, VOCABULARY), spec, ShuffleSeed(SEED, 1))
    last = second.group_ids[second.samples[0].group]
    good = [trajectory_pb2.Group.FromString(each.SerializeToString()) for each in groups]
    for found in groups:
        if found.id == last:
            # Beyond float32: its update has no gradient that is a number.
            found.trajectories[0].reward = 1e300
    worker = Worker(cast("Any", None), Team(Ranks(), Compute()), threads=1)
    config = JobConfig("job", str(small_llama), spec, SEED)
    before = weights(await worker.open(config, None))
    with pytest.raises(FailedPreconditionError) as failed:
        await worker.step("job", 1, groups)
    assert failed.value.reason == "NON_FINITE_GRADIENT"
    with pytest.raises(FailedPreconditionError) as closed:
        await worker.step("job", 1, good)
    assert closed.value.reason == "JOB_NOT_OPEN"
    again = await worker.open(config, None)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(again).items())
    assert (await worker.step("job", 1, good)).metrics["updates"] == 2
    await worker.stop()
