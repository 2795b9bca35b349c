"""Four LoRA jobs of two projects, and what each comes to at a trainer of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podium.types.v1 import trajectory_pb2
from podium_trainer.adapters.team import Team
from podium_trainer.learner.checkpoint import Saving
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig
from podium_trainer.worker import Worker
from support.kept_versions import KeptVersions, bits
from support.tiny_policy import step_groups, training_spec

COMPUTE = Compute(row_tokens=110, bfloat16="native")

JOBS: dict[str, dict[str, Any]] = {
    # The reference is the base without any adapter, whoever else has one.
    "kl": {"lora": {"rank": 4, "alpha": 8}, "loss": {"kl_coefficient": 0.2}},
    "wide": {"lora": {"rank": 16, "alpha": 4}, "gradient_checkpointing": True},
    "query": {
        "lora": {"rank": 2, "alpha": 16, "target_modules": ["q_proj"]},
        "loss": {"objective": "OBJECTIVE_GSPO", "advantage": "ADVANTAGE_KIND_NONE"},
        "mini_batches": 2,
        "epochs": 2,
    },
    "down": {
        "lora": {"rank": 3, "alpha": 3, "target_modules": ["down_proj", "k_proj"]},
        "loss": {"objective": "OBJECTIVE_CISPO", "kl_coefficient": 0.1},
        "schedule": "SCHEDULE_COSINE",
        "weight_decay": 0.1,
    },
}
PROJECTS = {"kl": "a", "wide": "a", "query": "a", "down": "b"}
STEPS = 3


def config(model: Path, job: str, dtype: str = "FLOAT32", **changes: Any) -> JobConfig:
    spec = {"steps": 4, "learning_rate": 1e-2, "warmup_steps": 2, **JOBS.get(job, {}), **changes}
    training = training_spec(dtype=f"COMPUTE_DTYPE_{dtype}", **spec)
    return JobConfig(job, str(model), training, seed=sum(map(ord, job)))


def a_worker(versions: KeptVersions, max_jobs: int) -> Worker:
    team = Team(Ranks(), COMPUTE, shares=max_jobs > 1)
    return Worker(versions, team, threads=1, max_jobs=max_jobs)


def groups_of(job: str, step: int) -> list[trajectory_pb2.Group]:
    # Each job's own.
    return step_groups(step + len(job), groups=2 + len(job) % 2)


async def take(worker: Worker, job: str, step: int) -> None:
    await worker.step(job, step, groups_of(job, step))
    await worker.save(job, step, [], {}, Saving.BEHIND if step % 2 else Saving.WITH)
    await worker.save_state(job, step)


_lone: dict[tuple[str, str, str], dict[int, dict[str, str]]] = {}


async def lone(model: Path, job: str, dtype: str = "FLOAT32") -> dict[int, dict[str, str]]:
    """By version, what the job comes to at a trainer of its own."""
    if (str(model), job, dtype) not in _lone:
        kept = KeptVersions()
        worker = a_worker(kept, 1)
        await worker.open(config(model, job, dtype), None)
        await worker.save(job, 0, [], {})
        for step in range(1, STEPS + 1):
            await take(worker, job, step)
        await worker.stop()
        found = {version: bits(it) for (_, version), it in kept.versions.items()}
        assert len({frozenset(it.items()) for it in found.values()}) == STEPS + 1
        _lone[str(model), job, dtype] = found
    return _lone[str(model), job, dtype]


async def assert_as_alone(
    kept: KeptVersions, model: Path, job: str, dtype: str = "FLOAT32"
) -> None:
    found = {version: bits(it) for (name, version), it in kept.versions.items() if name == job}
    assert found == await lone(model, job, dtype)
