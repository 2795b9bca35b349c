"""Asks a job's teacher how likely it would have said what the policy sampled.

What it says is stored with the group before the group trains, so that a step which is taken again
needs no teacher (docs/decisions/0051).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from podium.core.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    PodiumError,
    UnavailableError,
)
from podium.core.skip_reasons import NO_TEACHER_ANSWERS, TEACHER_ERROR, TEACHER_UNAVAILABLE
from podium.core.tasks import run_all
from podium.core.token_records import LOGPROB_SLACK, token_record_violations
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import policy_pb2, trajectory_pb2

from podium_controller.domain.errors import (
    STORE_FORBIDDEN,
    TOKEN_REFUSED,
    DatabaseUnavailableError,
    JobFailedError,
    LeaseLostError,
)
from podium_controller.domain.ports import COLLECTED, JUDGED, GroupKey, Ledger
from podium_controller.domain.step_metrics import is_failed, taught_tokens
from podium_controller.domain.uncollected import UNCOLLECTED
from podium_controller.pools.pools import Pool
from podium_controller.training.judging import Scoring, skipped
from podium_controller.training.recovery import Recovery, is_transient
from podium_controller.training.reporter import Reporter
from podium_controller.training.serving import Serving

_BROKEN = "LOGPROBS_NOT_FINITE"


@dataclass(frozen=True)
class Teacher:
    """The policy that a job's own learns from."""

    policy: policy_pb2.PolicyRef
    """Of one version; without a job its pool's base model."""
    pool: Pool
    serving: Serving
    """Of its version, at its pool."""

    @property
    def name(self) -> str:
        """`JOB@VERSION`, or `base`."""
        return f"{self.policy.job}@{self.policy.version}" if self.policy.job else "base"


class _UnreadableError(Exception):
    """The teacher cannot read an attempt; why."""


class Teaching:
    """Has one job's groups taught, and then judged where rewards count."""

    def __init__(
        self,
        job_id: str,
        project: str,
        teacher: Teacher,
        judging: Scoring | None,
        recovery: Recovery,
        ledger: Ledger,
        reporter: Reporter,
    ) -> None:
        """`judging` is None where rewards are not read: the environment's own are only shown."""
        self._job_id = job_id
        self._project = project
        self._teacher = teacher
        self._judging = judging
        self._recovery = recovery
        self._ledger = ledger
        self._reporter = reporter
        self._engine: inference_pb.GetEngineResponse | None = None

    async def score(self, key: GroupKey, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        """The group with what the teacher says, and its rewards, stored.

        Raises:
            JobFailedError: TEACHER_NOT_SERVED, such as of a version that is deleted; or as
                judging raises. A teacher that stays away, or whose answer is of no use, costs the
                group.
        """
        if group.skip_reason in UNCOLLECTED:
            await self._ledger.save_group(key, JUDGED, group)
            return group
        if not any(trajectory.teacher for trajectory in group.trajectories):
            group = await self._teach(key, group)
            if group.skip_reason:
                await self._ledger.save_group(key, JUDGED, group)
                return group
            if self._judging is not None:
                # So that no crash of a judge has the teacher asked again.
                await self._ledger.save_group(key, COLLECTED, group)
        if self._judging is not None:
            return await self._judging.score(key, group)
        for trajectory in group.trajectories:
            if trajectory.HasField("environment_reward"):
                trajectory.reward = trajectory.environment_reward
        await self._ledger.save_group(key, JUDGED, group)
        return group

    async def _teach(self, key: GroupKey, group: trajectory_pb2.Group) -> trajectory_pb2.Group:
        taught = trajectory_pb2.Group()
        taught.CopyFrom(group)
        attempts = [each for each in taught.trajectories if not is_failed(each)]
        try:
            unread = await self._recovery.run("teacher", lambda: self._ask(attempts), self._rebuild)
        except JobFailedError as error:
            if error.reason != NO_TEACHER_ANSWERS:
                raise
            return skipped(group, TEACHER_UNAVAILABLE, error.message)
        except (DatabaseUnavailableError, LeaseLostError):
            # No word of the teacher's: waiting and warning are written down on the way.
            raise
        except PodiumError as error:
            if isinstance(error, InternalError) or error.reason == _BROKEN:
                # Of this group: the others must not pay for it.
                return skipped(group, TEACHER_ERROR, error.message)
            # In its own words, a damaged file of the teacher's would be taken for the student's.
            name = self._teacher.name
            raise JobFailedError(
                f"the teacher {name} cannot be served at the pool {self._teacher.pool.name!r}:"
                f" {error.message}",
                reason="TEACHER_NOT_SERVED",
            ) from error
        if unread:
            await self._reporter.warn(
                f"{len(unread)} of {len(taught.trajectories)} attempts of group {group.id} leave"
                f" the loss, for the teacher cannot read them: {unread[0]}",
                key.step,
            )
        return taught

    async def _ask(self, attempts: Sequence[trajectory_pb2.Trajectory]) -> list[str]:
        """Has all attempts taught; returns why each that cannot be read is not."""
        if not attempts:
            return []
        share = self._teacher.pool.fair_share.share(
            self._job_id, self._project, len(attempts), self._reporter.held
        )
        # Inside the recovery: who waits for a lost service keeps nobody from the pool.
        with _as_teachers():
            async with share:
                told = await run_all([self._attempt(each) for each in attempts])
        return [text for text in told if text]

    async def _attempt(self, trajectory: trajectory_pb2.Trajectory) -> str:
        """Writes what the teacher says of an attempt; why it cannot read it, or nothing."""
        records = [history.tokens for history in trajectory.histories if history.tokens.spans]
        if not records or trajectory.teacher:
            return ""
        engine = self._engine = self._engine or await self._teacher.pool.inference.engine()
        try:
            said = await run_all([self._record(each, engine.max_model_len) for each in records])
        except _UnreadableError as error:
            return f"{trajectory.id}: {error}"
        for record, logprobs in zip(records, said, strict=True):
            record.teacher_logprobs[:] = logprobs
        name = self._teacher.name
        trajectory.teacher = name if self._teacher.policy.job else engine.base_model
        return ""

    async def _record(self, record: trajectory_pb2.TokenRecord, window: int) -> list[float]:
        """A log-prob of each sampled token, in the order of the spans.

        Raises:
            _UnreadableError: the record is too long, or the teacher refuses it.
        """
        if violations := token_record_violations(record, "tokens"):
            raise _UnreadableError(violations[0].description)
        count = taught_tokens(record)
        # An engine needs room for a token of its own, so the last of a full window has none.
        tokens = record.token_ids[: count - 1 if count == window else count]
        try:
            response = await self._teacher.pool.inference.score(self._teacher.policy, tokens)
        except InvalidArgumentError as error:
            raise _UnreadableError(error.message) from error
        self._check(response, len(tokens))
        told = [*response.logprobs, *[math.nan] * (count - len(tokens))]
        return [
            told[index - 1]
            for span in record.spans
            for index in range(span.start, span.start + span.length)
        ]

    def _check(self, response: inference_pb.ScoreTokensResponse, tokens: int) -> None:
        """A pool of another release may say anything.

        Raises:
            FailedPreconditionError: LOGPROBS_NOT_FINITE, it is not what was asked for.
        """
        wanted = self._teacher.name
        got = f"{response.policy}@{response.weights_version}" if response.policy else "base"
        problem = ""
        if got != wanted:
            problem = f"got the log-probs of {got}, asked for {wanted}"
        elif len(response.logprobs) != tokens - 1:
            problem = f"got {len(response.logprobs)} log-probs of {tokens} tokens"
        else:
            wrong = [v for v in response.logprobs if not (math.isfinite(v) and v <= LOGPROB_SLACK)]
            problem = f"got the log-prob {wrong[0]}" if wrong else ""
        if problem:
            raise FailedPreconditionError(f"the teacher's answer: {problem}", reason=_BROKEN)

    async def _rebuild(self) -> bool:
        with _as_teachers():
            if self._teacher.policy.job:
                return await self._teacher.serving.reload()
            await self._teacher.pool.inference.engine()
        return False


@contextmanager
def _as_teachers() -> Iterator[None]:
    """What a lost pool answers, as the absence of the teacher: the job's own pool may be another.

    Raises:
        UnavailableError: TEACHER_UNAVAILABLE, or what keeps every service from working.
    """
    try:
        yield
    except PodiumError as error:
        if not is_transient(error) or error.reason in (TOKEN_REFUSED, STORE_FORBIDDEN):
            raise
        raise UnavailableError(error.message, reason=NO_TEACHER_ANSWERS) from error
