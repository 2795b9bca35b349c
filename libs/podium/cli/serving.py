"""Has a pool serve the policies that a command names, and leaves it as it was found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from podium.cli.exits import CliError, Exit
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.sdk import AsyncClient
    from podium.types.v1 import policy_pb2

_HINT = (
    "Wait until that job has ended or pause it, or run a pool that holds many: 'podium up "
    "--weight-mode adapter'."
)


def named(policy: policy_pb2.PolicyRef) -> str:
    """A policy as people call it."""
    if not policy.job:
        return "the base model"
    return f"{policy.job}@{policy.version}" if policy.HasField("version") else policy.job


@asynccontextmanager
async def pool_for(client: AsyncClient) -> AsyncIterator[ServedPool]:
    """The pool for the block: at its end it serves again what gave way in it."""
    pool = ServedPool(client)
    try:
        yield pool
    finally:
        await pool.restore()


class ServedPool:
    """One inference pool. Of merged weights it holds one policy at a time, or the base model."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._before: tuple[str, int] | None = None
        """What gave way first."""
        self._loaded: tuple[str, int] | None = None
        """What was loaded last in its place; None for the base model."""

    async def serve(self, policy: policy_pb2.PolicyRef) -> None:
        """Has the pool serve a policy that it lacks.

        In a pool of merged weights what a job has left there gives way, unless the job trains.

        Raises:
            CliError: the pool can hold only one, and a job that has not ended needs another.
            PodiumError: why the version cannot be served.
        """
        from podium.inference.v1 import inference_service_pb2 as pb

        job, version = policy.job, policy.version if policy.HasField("version") else None
        held = {(p.job, p.version) async for p in self._client.policies.list() if p.job}
        if (job, version) in held or (version is None and job in {name for name, _ in held}):
            return
        engine = await self._client.policies.engine()
        if engine.weight_mode == pb.WEIGHT_MODE_MERGED:
            for other in held:
                await self._give_way(*other, to=named(policy), same=other[0] == job)
        if not job:
            self._loaded = None
            return
        if version is None:
            if not held:
                return  # The pool fetches the newest itself.
            version = (await self._client.checkpoints.get(job)).manifest.version
        note(f"loading {job}@{version}")
        await self._load(job, version)
        self._loaded = job, version

    async def restore(self) -> None:
        """Has the pool serve what gave way, unless it serves something else by now. Idempotent."""
        from podium.core.errors import PodiumError

        before, self._before = self._before, None
        if before is None or before == self._loaded:
            return
        job, version = before
        try:
            held = {(p.job, p.version) async for p in self._client.policies.list() if p.job}
            if held - {self._loaded}:
                return
            note(f"loading {job}@{version} again")
            if self._loaded is not None and self._loaded[0] != job:
                await self._client.policies.unload(self._loaded[0])
            await self._client.policies.load(job, version)
        except PodiumError as error:
            note(f"the pool does not serve {job}@{version} again: {error.message}")

    async def _give_way(self, job: str, version: int, *, to: str, same: bool) -> None:
        if await self._needed(job):
            raise CliError(
                f"the pool can hold only one policy and serves {job}@{version}, "
                f"which its job needs; it cannot serve {to} now",
                _HINT,
                Exit.CONFLICT,
            )
        if self._before is None and (job, version) != self._loaded:
            self._before = job, version
        if not same:
            note(f"{job}@{version} gives way to {to}")
            await self._client.policies.unload(job)

    async def _load(self, job: str, version: int) -> None:
        from podium.core.errors import FailedPreconditionError

        try:
            await self._client.policies.load(job, version)
        except FailedPreconditionError as error:
            if error.reason != "POOL_IN_USE":
                raise
            raise CliError(
                f"the pool serves another job now, and can hold only one ({error.message})",
                _HINT,
                Exit.CONFLICT,
            ) from error

    async def _needed(self, job: str) -> bool:
        """Whether a job trains, or is about to; one that is not known does not."""
        from podium.core.errors import NotFoundError
        from podium.jobs.v1 import job_service_pb2 as jobs
        from podium.sdk.jobs import TERMINAL

        try:
            state = (await self._client.jobs.get(job)).state
        except NotFoundError:
            return False
        return state not in TERMINAL | {jobs.JOB_STATE_PAUSED}
