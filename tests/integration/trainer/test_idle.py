"""Jobs that nobody calls: in the registry until their next call, and then as they were."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium_trainer.learner.checkpoint import Saving
from podium_trainer.learner.session import Session
from podium_trainer.worker import Worker
from prometheus_client import REGISTRY
from support.kept_versions import KeptVersions
from support.shared_jobs import JOBS, PROJECTS, STEPS, assert_as_alone, config, groups_of, take


def session_of(worker: Worker, job: str) -> Session:
    found = worker._slots.get(job)
    assert found is not None
    assert found.session is not None
    return found.session


def stowed() -> float | None:
    return REGISTRY.get_sample_value("podium_trainer_stowed_jobs")


async def test_idle_jobs_leave_memory_and_come_back_as_they_were(
    shared: Worker, kept: KeptVersions, small_llama: Path
) -> None:
    for job in JOBS:
        await shared.open(config(small_llama, job), None, PROJECTS[job])
        await shared.save(job, 0, [], {})
    for step in range(1, STEPS + 1):
        for job in JOBS:
            # Of the last one alone it stores the state itself.
            await shared.step(job, step, groups_of(job, step))
            await shared.save(job, step, [], {}, Saving.NONE if job == "down" else Saving.WITH)
        masters = [weakref.ref(session_of(shared, job).policy.masters) for job in JOBS]
        await shared.stow_idle(3600)
        assert stowed() == 0
        await shared.stow_idle(0)
        assert stowed() == len(JOBS)
        gc.collect()
        assert not any(it() for it in masters)
        # Their places are theirs, and what was published is said again.
        assert [claim.job_id for claim in shared.held] == list(JOBS)
        with pytest.raises(FailedPreconditionError, match=f"next step is {step + 1}"):
            shared.expect("kl", step)
        await shared.save_state("kl", step)
        assert (await shared.save("wide", step, [], {})).version == step
        assert stowed() == len(JOBS) - 1
    for job in JOBS:
        await assert_as_alone(kept, small_llama, job)


async def test_an_idle_job_is_opened_closed_and_fetched_in_vain_like_any_other(
    shared: Worker, kept: KeptVersions, small_llama: Path
) -> None:
    for job in ("kl", "query", "down"):
        await shared.open(config(small_llama, job), None)
        await shared.save(job, 0, [], {})
        await take(shared, job, 1)
    # A step that is in no version yet is nowhere else.
    await shared.step("down", 2, groups_of("down", 2))
    # What the registry does not take stays.
    await shared.step("query", 2, groups_of("query", 2))
    await shared.save("query", 2, [], {}, Saving.NONE)
    kept.is_away = True
    await shared.stow_idle(0)
    kept.is_away = False
    assert stowed() == 1
    await shared.stow_idle(0)
    assert stowed() == 2
    # Nor does it come back from one that is away; but then.
    kept.is_away = True
    with pytest.raises(UnavailableError, match="the registry is away"):
        await take(shared, "kl", 2)
    kept.is_away = False
    assert stowed() == 2
    await take(shared, "kl", 2)
    await take(shared, "query", 3)
    await shared.save("down", 2, [], {})
    await shared.stow_idle(0)
    assert (await shared.open(config(small_llama, "kl"), 1)).step == 1
    assert (await shared.open(config(small_llama, "down"), 2)).step == 2
    await shared.close("query")
    assert stowed() == 0
    await shared.open(config(small_llama, "query"), 3)
    for job, step in [("kl", 2), ("down", 3), ("kl", 3)]:
        await take(shared, job, step)
    for job in ("kl", "query", "down"):
        await assert_as_alone(kept, small_llama, job)
