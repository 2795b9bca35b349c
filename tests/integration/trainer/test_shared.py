"""Several jobs on one base model: each is, bit for bit, what it is alone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import (
    FailedPreconditionError,
    NotFoundError,
    PodiumError,
    ResourceExhaustedError,
)
from podium_trainer.domain.batch import build_batch
from podium_trainer.domain.mini_batches import ShuffleSeed, mini_batches
from podium_trainer.learner.session import Session
from podium_trainer.worker import Worker
from prometheus_client import REGISTRY
from support.families import build_mixture
from support.full import long
from support.kept_versions import KeptVersions, bits
from support.shared_jobs import (
    JOBS,
    PROJECTS,
    STEPS,
    a_worker,
    assert_as_alone,
    config,
    groups_of,
    lone,
    take,
)
from support.tiny_policy import (
    VOCABULARY,
    build_small_llama,
    group,
    step_groups,
    trajectory,
)


@pytest.mark.parametrize("dtype", ["FLOAT32", long("BFLOAT16")])
async def test_four_jobs_of_two_projects_are_each_what_they_are_alone(
    shared: Worker, kept: KeptVersions, small_llama: Path, dtype: str
) -> None:
    """All at once, however their calls meet; masters, moments and random state of each version."""

    async def whole(job: str) -> None:
        await shared.open(config(small_llama, job, dtype), None, PROJECTS[job])
        await shared.save(job, 0, [], {})
        for step in range(1, STEPS + 1):
            await take(shared, job, step)

    await asyncio.gather(*map(whole, JOBS))
    assert sorted(claim.job_id for claim in shared.held) == sorted(JOBS)
    for job in JOBS:
        await assert_as_alone(kept, small_llama, job, dtype)


async def test_jobs_come_go_and_go_on_beside_each_other(
    shared: Worker, kept: KeptVersions, small_llama: Path
) -> None:
    for job in ("kl", "wide", "query"):
        await shared.open(config(small_llama, job), None, PROJECTS[job])
        await shared.save(job, 0, [], {})
        await take(shared, job, 1)
    await shared.close("wide")
    await take(shared, "kl", 2)
    await shared.open(config(small_llama, "down"), None, "b")
    await shared.save("down", 0, [], {})
    # One step is lost: taken, and in no version.
    await shared.step("query", 2, groups_of("wide", 2))
    await shared.open(config(small_llama, "query"), 1, "a")
    # It resumes into the middle of the others.
    await shared.open(config(small_llama, "wide"), 1, "b")
    for job, step in [("wide", 2), ("query", 2), ("down", 1), ("kl", 3), ("down", 2)]:
        await take(shared, job, step)
    await shared.close("kl")
    for job, step in [("down", 3), ("query", 3), ("wide", 3)]:
        await take(shared, job, step)
    for job in JOBS:
        await assert_as_alone(kept, small_llama, job)


async def test_what_goes_wrong_with_one_job_touches_no_other(
    shared: Worker, kept: KeptVersions, small_llama: Path
) -> None:
    for job in ("kl", "query", "down"):
        await shared.open(config(small_llama, job), None)
        await shared.save(job, 0, [], {})
    await take(shared, "kl", 1)

    # Torn: the second update has a gradient that is no number.
    torn = step_groups(1, groups=2)
    query = config(small_llama, "query")
    batch = build_batch(torn, query.training, VOCABULARY)
    _, second = mini_batches(batch, query.training, ShuffleSeed(query.seed, 1))
    last = second.group_ids[second.samples[0].group]
    next(it for it in torn if it.id == last).trajectories[0].reward = 1e300
    with pytest.raises(FailedPreconditionError) as failed:
        await shared.step("query", 1, torn)
    assert failed.value.reason == "NON_FINITE_GRADIENT"
    assert [claim.job_id for claim in shared.held] == ["kl", "down"]
    # Damaged: a token that the model does not have.
    attempts = [trajectory(f"g/t{i}", float(i), [1, 2, 999], [(1, 2)]) for i in (0, 1)]
    with pytest.raises(PodiumError):
        await shared.step("down", 1, [group("g", *attempts)])
    # Cancelled, while it computes or before.
    task = asyncio.create_task(shared.step("down", 1, groups_of("down", 1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # A job that cannot be opened at all, and one whose version there is not.
    wrong = {"rank": 2, "target_modules": ["no_proj"]}
    with pytest.raises(PodiumError):
        await shared.open(config(small_llama, "wrong", lora=wrong), None)
    with pytest.raises(NotFoundError):
        await shared.open(config(small_llama, "gone"), 7)

    assert [claim.job_id for claim in shared.held] == ["kl", "down"]
    await shared.open(config(small_llama, "query"), 0)
    for job, step in [("kl", 2), ("down", 1), ("query", 1), ("down", 2), ("query", 2)]:
        await take(shared, job, step)
    for job in ("kl", "query", "down"):
        await take(shared, job, 3)
        await assert_as_alone(kept, small_llama, job)


async def test_experts_of_several_jobs_train_on_one_base(tmp_path: Path) -> None:
    """PEFT wraps the stacks themselves, which the jobs have in common."""
    model = build_mixture("qwen3_moe", tmp_path / "mixture")
    changes: dict[str, dict[str, Any]] = {
        "one": {"lora": {"rank": 2, "alpha": 4, "target_modules": ["q_proj", "experts"]}},
        "other": {
            "lora": {"rank": 4, "alpha": 4, "target_modules": ["experts"]},
            "loss": {"kl_coefficient": 0.1},
        },
        "plain": {"lora": {"rank": 4, "alpha": 4}},
    }
    found: dict[str, dict[tuple[str, int], dict[str, str]]] = {}
    for max_jobs in (1, 3):
        kept = KeptVersions()
        worker = a_worker(kept, max_jobs)
        for step in (1, 2):
            for job, specific in changes.items():
                if step == 1 or max_jobs == 1:
                    resume = None if step == 1 else step - 1
                    await worker.open(config(model, job, **specific), resume)
                await take(worker, job, step)
                if max_jobs == 1:
                    await worker.close(job)
        await worker.stop()
        found[str(max_jobs)] = {key: bits(it) for key, it in kept.versions.items()}
    assert found["1"] == found["3"]
    assert len(found["1"]) == 6


def held_bytes(*sessions: Session) -> int:
    """Of all tensors that the sessions keep between steps, each storage once."""
    storages: dict[int, int] = {}
    for session in sessions:
        network = session.policy.network
        tensors = [
            *network.parameters(),
            *network.buffers(),
            *network.kept(),
            *session.policy.masters.weights.values(),
            *session._optimizer.state().values(),
        ]
        for tensor in tensors:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


@pytest.mark.parametrize("dtype", ["FLOAT32", long("BFLOAT16")])
async def test_four_jobs_hold_little_more_than_one(
    shared: Worker, tmp_path: Path, dtype: str
) -> None:
    """Every tensor is counted, so that a second base, or its head in float32, shows."""
    model = build_small_llama(
        tmp_path / "model", hidden_size=128, intermediate_size=512, num_hidden_layers=4
    )
    spec = {"rank": 1, "target_modules": ["q_proj", "v_proj"]}
    sessions = []
    for job in "abcd":
        sessions.append(await shared.open(config(model, job, dtype, lora=spec), None, job))
        await shared.step(job, 1, step_groups(1))
    one = held_bytes(sessions[0])
    base = sum(it.nbytes for it in sessions[0].policy.network.parameters() if not it.requires_grad)
    assert one > base
    assert held_bytes(*sessions) <= 1.3 * one
    # Nothing of the base is kept for a job that is closed, and nothing at all after the last.
    adapter = list(map(weakref.ref, sessions[0].policy.masters.weights.values()))
    frozen = (it for it in sessions[0].policy.network.parameters() if not it.requires_grad)
    weights = list(map(weakref.ref, frozen))
    sessions.clear()
    await shared.close("a")
    gc.collect()
    assert not any(it() is not None for it in adapter)
    assert all(it() is not None for it in weights)
    for job in "bcd":
        await shared.close(job)
    gc.collect()
    assert not any(it() is not None for it in weights)


@pytest.fixture
def other_llama(tmp_path: Path) -> Path:
    return build_small_llama(tmp_path / "other", seed=1)


async def test_what_leaves_no_room_is_refused_by_name(
    shared: Worker, small_llama: Path, other_llama: Path
) -> None:
    await shared.open(config(small_llama, "kl"), None)
    full = {"trainable": "TRAINABLE_KIND_FULL", "lora": None}
    asked = {
        "base_model": config(other_llama, "wide"),
        "dtype": config(small_llama, "wide", "BFLOAT16"),
        "trainable": config(small_llama, "wide", **full),
    }
    for what, wanted in asked.items():
        with pytest.raises(ResourceExhaustedError) as refused:
            await shared.open(wanted, None)
        assert refused.value.reason == "TRAINER_BUSY"
        assert refused.value.metadata == {
            "held": what,
            "job_id": "kl",
            "base_model": str(small_llama),
            "max_jobs": "4",
        }
        assert "allowed" in refused.value.message
    for job in ("wide", "query", "down"):
        await shared.open(config(small_llama, job), None)
    with pytest.raises(ResourceExhaustedError) as full_up:
        await shared.open(config(small_llama, "fifth"), None)
    assert full_up.value.metadata["held"] == "slots"
    # An open job is opened again, for all that.
    await shared.open(config(small_llama, "down", steps=9), None)
    for job in ("wide", "query", "down", "kl"):
        await shared.close(job)
    await shared.open(asked["trainable"], None)
    with pytest.raises(ResourceExhaustedError) as alone:
        await shared.open(config(small_llama, "kl"), None)
    assert (alone.value.metadata["held"], alone.value.metadata["job_id"]) == ("trainable", "wide")
    await shared.close("wide")
    # What was held is free for another base.
    await shared.open(asked["base_model"], None)


async def test_a_base_whose_files_changed_takes_no_further_job(
    shared: Worker, kept: KeptVersions, tmp_path: Path
) -> None:
    model = build_small_llama(tmp_path / "model")
    await lone(model, "kl")
    await shared.open(config(model, "kl"), None)
    build_small_llama(model, seed=3)
    with pytest.raises(ResourceExhaustedError, match="until all are closed") as refused:
        await shared.open(config(model, "wide"), None)
    assert refused.value.reason == "TRAINER_BUSY"
    await shared.save("kl", 0, [], {})
    for step in range(1, STEPS + 1):
        await take(shared, "kl", step)
    await assert_as_alone(kept, model, "kl")


async def test_a_jobs_series_are_its_own_and_go_with_it(shared: Worker, small_llama: Path) -> None:
    for job in ("kl", "wide"):
        await shared.open(config(small_llama, job), None)
    await take(shared, "wide", 1)
    await take(shared, "kl", 1)
    await take(shared, "kl", 2)

    def value(job: str, name: str = "podium_trainer_step") -> float | None:
        return REGISTRY.get_sample_value(name, {"job_id": job})

    assert (value("kl"), value("wide")) == (2, 1)
    assert value("kl", "podium_trainer_kl_reference_nats") is not None
    assert value("wide", "podium_trainer_kl_reference_nats") is None
    await shared.close("kl")
    assert (value("kl"), value("wide")) == (None, 1)
    assert value("kl", "podium_trainer_kl_reference_nats") is None


async def test_versions_keep_their_own_jobs_numbers(
    shared: Worker, kept: KeptVersions, small_llama: Path
) -> None:
    taken = {}
    for job in ("kl", "wide"):
        await shared.open(config(small_llama, job), None)
        taken[job] = (await shared.step(job, 1, groups_of(job, 1))).metrics
    for job in ("kl", "wide"):
        await shared.save(job, 1, [job], {"of": len(job)})
        kept_with = kept.provenance[job, 1]
        assert kept_with.metrics == {**taken[job], "of": len(job)}
        assert list(kept_with.group_ids) == [job]
