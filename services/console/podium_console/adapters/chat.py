"""Which pool can answer for a policy, and having it serve the policy.

A pool of merged weights holds one policy. What a job that has not ended needs there is never taken
away; anything else gives way when somebody asks for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from podium.core.errors import DeadlineExceededError, FailedPreconditionError, NotFoundError
from podium.jobs.v1 import job_service_pb2 as jobs

from podium_console.adapters.installation import Installation
from podium_console.domain import views


async def choose_pool(here: Installation, base_model: str, wanted: str) -> str:
    """The pool that is wanted, or else the first that serves the base model.

    Raises:
        NotFoundError: there is none.
        PodiumError: none of them answers.
    """
    if wanted or len(here.pools) == 1:
        name = wanted or here.pools[0]
        here.policies(name)
        return name
    states = await asyncio.gather(*map(here.pool_state, here.pools))
    for state in states:
        if state.engine and state.engine["base_model"] == base_model:
            return state.name
    raise NotFoundError(
        f"no pool that answers serves {base_model or 'a base model'}", reason="NO_POOL"
    )


async def is_served(here: Installation, pool: str, job: str, version: int | None) -> bool:
    """Whether the pool answers for a policy without loading anything."""
    policies = here.policies(pool)
    held = {(p.job, p.version) async for p in policies.list() if p.job}
    if not job:
        engine = views.engine(await policies.engine())
        return not held or engine["weight_mode"] != "merged"
    if version is None:
        return job in {name for name, _ in held}
    return (job, version) in held


async def load(
    here: Installation, pool: str, job: str, version: int | None, within: float
) -> dict[str, Any]:
    """Has the pool serve a policy, or the base model for an empty job; says what gave way.

    Raises:
        FailedPreconditionError: a job that has not ended needs what would have to give way.
        DeadlineExceededError: it takes too long.
        PodiumError: why the version cannot be served.
    """
    policies = here.policies(pool)
    try:
        async with asyncio.timeout(within):
            engine = views.engine(await policies.engine())
            held = [p async for p in policies.list() if p.job]
            gone = []
            if engine["weight_mode"] == "merged":
                for other in held:
                    if (other.job, other.version) == (job, version):
                        return {"gave_way": []}
                    await _refuse_if_needed(here, other.job, other.version)
                    if other.job != job:
                        await policies.unload(other.job)
                        gone.append({"job": other.job, "version": other.version})
            if job:
                if version is None:
                    version = (await here.checkpoints.get(job)).manifest.version
                await policies.load(job, version)
            return {"gave_way": gone}
    except TimeoutError:
        raise DeadlineExceededError(
            f"the pool {pool} has not loaded it after {within:g} seconds"
        ) from None


async def _refuse_if_needed(here: Installation, job: str, version: int) -> None:
    try:
        state = (await here.jobs.get(job)).state
    except NotFoundError:
        return
    if state not in views.ENDED | {jobs.JOB_STATE_PAUSED}:
        raise FailedPreconditionError(
            f"the pool can hold only one policy and serves {job}@{version}, which its job needs; "
            "wait until that job has ended, or pause it",
            reason="POOL_IN_USE",
        )
